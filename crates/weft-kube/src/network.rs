//! The custom resource of a network, and the network of the fleet that follows from it.
#![allow(unreachable_pub, reason = "KubeSchema makes a private copy of the structure")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, CustomResourceExt, KubeSchema, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_vswitch::fleet::{Key, NetworkObject, Object};

use crate::Owner;

/// A network of the overlay, the same on all hosts of the fleet.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "weft.dev",
    version = "v1alpha1",
    kind = "WeftNetwork",
    status = "WeftNetworkStatus",
    shortname = "wnet",
    doc = "A network of the Weft overlay.",
    derive = "PartialEq",
    printcolumn(name = "VNI", type_ = "integer", json_path = ".spec.vni"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Accepted')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct WeftNetworkSpec {
    /// The network's number, 24 bits. It cannot be changed: ports belong to a network by its number.
    #[schemars(range(min = 0, max = 16_777_215))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("vni cannot be changed: create another WeftNetwork"))]
    pub vni: u32,
    /// `true` if lost frames are retransmitted.
    #[serde(default = "yes")]
    pub reliable: bool,
    /// `true` if tenants see frames in the order they were sent.
    #[serde(default = "yes")]
    pub in_order: bool,
    /// The gateway's address in each subnet, with its prefix length: `192.168.7.254/24`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(length(max = 49), regex(pattern = r"^[0-9a-fA-F.:]+/[0-9]{1,3}$"))
    )]
    pub gateways: Vec<String>,
}

/// The state of a network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WeftNetworkStatus {
    /// The generation of the object that the conditions are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`: the network is in the fleet as the object says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

const fn yes() -> bool {
    true
}

/// Returns the custom resource definition of networks, as YAML.
///
/// # Panics
/// Panics if the definition cannot be written, which a test of this crate excludes.
pub fn crd_yaml() -> String {
    let value = serde_json::to_value(WeftNetwork::crd()).expect("a definition is JSON");
    let yaml = serde_saphyr::to_string(&value).expect("JSON is YAML");
    let yaml = yaml.trim_end();
    format!("# Generated from crates/weft-kube/src/network.rs by `weft-kube crd`.\n---\n{yaml}\n")
}

/// The type of the condition of networks.
pub(crate) const ACCEPTED: &str = "Accepted";

/// The result of reading a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The reason, one word.
    pub reason: &'static str,
    /// The reason for people: the field, and the fix.
    pub message: String,
}

impl Verdict {
    /// The reason of networks that are in the fleet.
    pub const WRITTEN: &str = "Written";

    /// Returns the verdict of a network that is accepted.
    pub fn accepted(vni: u32) -> Self {
        let message = format!("network {vni} is in the fleet");
        Self { reason: Self::WRITTEN, message }
    }

    /// Returns the verdict of a network that the fleet has from others.
    pub fn not_owned(vni: u32) -> Self {
        let message = format!(
            "spec.vni: network {vni} is in the fleet, written by others. Choose another number, or hand it over: `weft \
             fleet del networks/{vni}/settings`"
        );
        Self { reason: "NotOwned", message }
    }

    /// Returns `true` if the network is accepted.
    pub fn is_accepted(&self) -> bool {
        self.reason == Self::WRITTEN
    }
}

/// Returns the networks of the fleet, and the verdict on each object by name.
pub(crate) fn networks(
    objects: &[WeftNetwork],
    owner: &Owner,
) -> (BTreeMap<Key, Object>, BTreeMap<String, Verdict>) {
    let (mut made, mut verdicts) = (BTreeMap::<Key, Object>::new(), BTreeMap::new());
    let mut holders = BTreeMap::<u32, String>::new();
    let mut objects: Vec<_> = objects.iter().collect();
    // Of two, the one that has the number keeps it, or else the older one; times are whole seconds.
    objects.sort_by_key(|it| (!was_accepted(it), it.creation_timestamp(), it.name_any()));
    for object in objects {
        let (name, spec) = (object.name_any(), &object.spec);
        let verdict = match (holders.get(&spec.vni), read(spec, owner)) {
            (Some(holder), _) => {
                let message =
                    format!("spec.vni: {} is the number of {holder}: choose another", spec.vni);
                Verdict { reason: "VniTaken", message }
            }
            (None, Err(message)) => Verdict { reason: "Invalid", message },
            (None, Ok((key, object))) => {
                holders.insert(spec.vni, name.clone());
                made.insert(key, object);
                Verdict::accepted(spec.vni)
            }
        };
        verdicts.insert(name, verdict);
    }
    (made, verdicts)
}

fn was_accepted(network: &WeftNetwork) -> bool {
    let conditions = network.status.iter().flat_map(|status| &status.conditions);
    let mut accepted = conditions.filter(|it| it.type_ == ACCEPTED);
    accepted.any(|it| it.status == "True")
}

fn read(spec: &WeftNetworkSpec, owner: &Owner) -> Result<(Key, Object), String> {
    let WeftNetworkSpec { vni, reliable, in_order, gateways } = spec.clone();
    let owner = Some(owner.as_str().to_owned());
    let object = Object::Network(NetworkObject { reliable, in_order, gateways, owner });
    // The key has 24 bits, which the schema promises, and a host would refuse another one.
    let key: Key = format!("networks/{vni}/settings")
        .parse()
        .map_err(|_| format!("spec.vni: {vni} has more than 24 bits: choose 0 to 16777215"))?;
    let named = |error: weft_vswitch::config::ConfigError| {
        error.to_string().replace("network.", "spec.").replace("in-order", "inOrder")
    };
    object.check(&key).map_err(named)?;
    Ok((key, object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_that_has_its_number_keeps_it() {
        let mut newer = network("c", 100, "2026-01-09T00:00:00Z");
        let status = r#"{"conditions":[{"type":"Accepted","status":"True","reason":"Written","message":"",
            "lastTransitionTime":"2026-01-09T00:00:00Z"}]}"#;
        newer.status = serde_json::from_str(status).unwrap();
        let objects = [network("a", 100, "2026-01-02T00:00:00Z"), newer];
        let (_, verdicts) = networks(&objects, &Owner::new("prod").unwrap());
        assert!(verdicts["c"].is_accepted() && !verdicts["a"].is_accepted(), "{verdicts:?}");
    }

    /// The definition in the chart is that of the type. BLESS=1 writes it.
    #[test]
    fn the_definition_of_the_chart_is_that_of_the_type() {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../dist/kubernetes/chart/crds/weftnetworks.yaml");
        let yaml = crd_yaml();
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&file, &yaml).unwrap();
        }
        let known = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(
            known,
            yaml,
            "BLESS=1 cargo test -p weft-kube --lib definition writes {}",
            file.display()
        );
        for rule in ["self == oldSelf", "maximum: 16777215", "scope: Cluster"] {
            assert!(yaml.contains(rule), "{rule}\n{yaml}");
        }
    }

    fn network(name: &str, vni: u32, created: &str) -> WeftNetwork {
        let text = format!(
            r#"{{"apiVersion":"weft.dev/v1alpha1","kind":"WeftNetwork","spec":{{"vni":{vni}}},
               "metadata":{{"name":"{name}","creationTimestamp":"{created}"}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn the_older_of_two_networks_keeps_the_number_and_bad_values_name_field_and_fix() {
        let mut bad = network("bad", 7, "2026-01-03T00:00:00Z");
        bad.spec.gateways = vec!["10.0.0.1".into()];
        let objects = [
            network("a", 100, "2026-01-02T00:00:00Z"),
            network("b", 100, "2026-01-01T00:00:00Z"),
            bad,
        ];
        let (made, verdicts) = networks(&objects, &Owner::new("prod").unwrap());
        let keys: Vec<_> = made.keys().map(ToString::to_string).collect();
        assert_eq!(keys, ["networks/100/settings"]);
        assert_eq!(
            String::from_utf8(made.values().next().unwrap().json()).unwrap(),
            r#"{"reliable":true,"in-order":true,"owner":"k8s.prod"}"#
        );
        assert!(verdicts["b"].is_accepted());
        assert_eq!(verdicts["a"].reason, "VniTaken");
        assert!(verdicts["a"].message.contains("number of b"), "{verdicts:?}");
        assert_eq!(verdicts["bad"].reason, "Invalid");
        let message = &verdicts["bad"].message;
        assert!(
            message.contains("spec.gateways = 10.0.0.1") && message.contains("192.168.0.1/24"),
            "{message}"
        );
    }
}
