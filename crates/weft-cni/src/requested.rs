//! The addresses that a runtime asks for in a call. The annotations of a pod can be behind each of them, so the network's
//! configuration lists the kinds that are allowed (`allowAddresses`): with the address of another pod, one that is not
//! connected at the moment, a pod receives what is sent to that one.

use serde_json::Value;
use weft_vswitch::config::Mac;

use crate::cidr::Cidr;
use crate::config::{AddressKind, Config, wrong};
use crate::environment::Arguments;
use crate::failure::{Code, Failure};

/// The addresses that a runtime asks for, and that the network allows it to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requested {
    pub(crate) mac: Option<Mac>,
    /// The addresses of `runtimeConfig`. A plugin for addresses reads those of other places itself.
    pub(crate) ips: Vec<Cidr>,
}

impl Requested {
    /// Returns the addresses of a call.
    ///
    /// # Errors
    /// Code 7 for a key of the configuration, 4 for one of `CNI_ARGS`: its kind is not allowed, or its value is none.
    pub(crate) fn of(config: &Config, arguments: &Arguments) -> Result<Self, Failure> {
        use AddressKind::{Ips, Mac};
        use Code::{InvalidConfig, InvalidEnvironment};
        let own = &config.own.runtime_config;
        let places = [
            (Mac, "runtimeConfig.mac", InvalidConfig, own.mac().is_some()),
            (Mac, "MAC in CNI_ARGS", InvalidEnvironment, arguments.get("MAC").is_some()),
            (Ips, "runtimeConfig.ips", InvalidConfig, !own.ips.is_empty()),
            (Ips, "args.cni.ips", InvalidConfig, has_ips(config)),
            (Ips, "IP in CNI_ARGS", InvalidEnvironment, arguments.get("IP").is_some()),
        ];
        let is_allowed = |kind| config.own.allow_addresses.contains(&kind);
        let refused = places.iter().find(|(kind, .., present)| *present && !is_allowed(*kind));
        if let Some((kind, place, code, _)) = refused {
            return Err(not_allowed(*kind, place, *code));
        }
        Ok(Self { mac: mac(own.mac(), arguments)?, ips: ips(&own.ips)? })
    }
}

/// Returns `true` if the arguments in the configuration have IP addresses, which plugins for addresses take. Those are
/// programs in Go, for which keys in capitals and in Unicode's other forms of a letter are the same.
fn has_ips(config: &Config) -> bool {
    let arguments = config.object.get("args").and_then(|args| args.get("cni"));
    let arguments = arguments.and_then(Value::as_object).into_iter().flatten();
    arguments.filter(|(key, _)| key.to_uppercase() == "IPS").any(|(_, value)| !is_empty(value))
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

fn not_allowed(kind: AddressKind, place: &str, code: Code) -> Failure {
    let (what, name) = match kind {
        AddressKind::Mac => ("an Ethernet address", "mac"),
        AddressKind::Ips => ("IP addresses", "ips"),
    };
    let message = format!("{place} requests {what}, which this network does not allow");
    let remedy = format!(
        "add \"{name}\" to allowAddresses in its configuration if whoever requests one may have the address of any container"
    );
    Failure::new(code, message).with_details(remedy)
}

fn mac(of_config: Option<&str>, arguments: &Arguments) -> Result<Option<Mac>, Failure> {
    if let Some(text) = of_config {
        let wrong = |_| wrong("runtimeConfig.mac", &text.into(), "02:00:00:00:00:01");
        return text.parse().map(Some).map_err(wrong);
    }
    let parse = |text: &str| {
        text.parse().map_err(|error: weft_vswitch::config::ParseMacError| {
            Failure::new(Code::InvalidEnvironment, format!("CNI_ARGS: MAC: {error}"))
        })
    };
    arguments.get("MAC").map(parse).transpose()
}

fn ips(texts: &[String]) -> Result<Vec<Cidr>, Failure> {
    let cidr = |text: &String| {
        text.parse().map_err(|()| wrong("runtimeConfig.ips", &text.clone().into(), "10.0.0.2/24"))
    };
    texts.iter().map(cidr).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the addresses of a call whose network allows some kinds.
    fn requested(
        allowed: &Value,
        keys: &Value,
        arguments: &str,
    ) -> Result<Requested, (u64, String, String)> {
        let mut object =
            json!({ "cniVersion": "1.1.0", "name": "pods", "allowAddresses": allowed });
        for (key, value) in keys.as_object().unwrap() {
            object[key] = value.clone();
        }
        let config = Config::parse(object.to_string().as_bytes()).unwrap();
        let requested = Requested::of(&config, &Arguments::parse(arguments).unwrap());
        requested.map_err(|error| (error.code.number(), error.message, error.details))
    }

    #[test]
    fn an_address_in_any_place_is_refused_unless_the_network_allows_its_kind() {
        let places = [
            ("mac", 7, json!({ "runtimeConfig": { "mac": "02:00:00:00:00:07" } }), ""),
            ("mac", 4, json!({}), "IgnoreUnknown=1;MAC=02:00:00:00:00:07"),
            ("ips", 7, json!({ "runtimeConfig": { "ips": ["10.1.0.7/16"] } }), ""),
            ("ips", 7, json!({ "args": { "cni": { "ips": ["10.1.0.7/16"] } } }), ""),
            // As a program in Go reads them: capitals, and the long s of U+017F.
            ("ips", 7, json!({ "args": { "cni": { "IPs": ["10.1.0.7/16"] } } }), ""),
            ("ips", 7, json!({ "args": { "cni": { "ip\u{17f}": ["10.1.0.7/16"] } } }), ""),
            ("ips", 4, json!({}), "IP=10.1.0.7/16"),
        ];
        for (kind, code, keys, arguments) in &places {
            let other = if *kind == "mac" { "ips" } else { "mac" };
            for allowed in [json!([]), json!([other])] {
                let (found, message, remedy) = requested(&allowed, keys, arguments).unwrap_err();
                assert_eq!(found, *code, "{message}");
                assert!(message.contains("does not allow"), "{message}");
                assert!(remedy.contains(&format!("\"{kind}\" to allowAddresses")), "{remedy}");
            }
            requested(&json!([kind]), keys, arguments).unwrap();
        }
    }

    #[test]
    fn a_call_that_asks_for_no_address_is_allowed_everywhere() {
        let empty = json!({
            "runtimeConfig": { "mac": "", "ips": [] },
            "args": { "cni": { "ips": null, "labels": ["web"] } },
        });
        for keys in [json!({}), empty] {
            let requested = requested(&json!([]), &keys, "K8S_POD_NAME=cart-0").unwrap();
            assert_eq!(requested, Requested::default());
        }
    }

    #[test]
    fn the_address_of_the_configuration_comes_before_that_of_the_arguments() {
        let keys = json!({ "runtimeConfig": { "mac": "02:00:00:00:00:07" } });
        let requested = requested(&json!(["mac"]), &keys, "MAC=02:00:00:00:00:09").unwrap();
        assert_eq!(requested.mac, Some("02:00:00:00:00:07".parse().unwrap()));
    }
}
