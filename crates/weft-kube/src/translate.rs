//! The wishes of a cluster as objects of the fleet. It is a function of its arguments: the same world gives the same objects.

use std::collections::{BTreeMap, BTreeSet};

use weft_vpc::{Action, Direction, Net, Prefix, Rule, SecurityGroupConfig};
use weft_vswitch::fleet::{Key, Object, PortPoliciesObject};

use crate::network::{Verdict, networks};
use crate::policy::{Compiled, Policy};
use crate::{Labels, Owner, Pod, World};

/// The label of a pod's port that has its UID.
const UID: &str = "uid";

/// The settings of the controller.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The owner of the objects.
    pub owner: Owner,
    /// The number of the pods' network. Without one policies are not translated.
    pub pod_network: Option<u32>,
    /// The nodes' own addresses in that network, which reach their pods whatever policies say.
    pub node_addresses: Vec<Prefix>,
}

/// The consequences of a world.
#[derive(Debug, Default)]
pub struct Translation {
    /// The objects of the fleet.
    pub objects: BTreeMap<Key, Object>,
    /// The parts of policies that have no equivalent, by namespace and name.
    pub warnings: BTreeMap<(String, String), BTreeSet<String>>,
    /// The networks by name, each accepted or refused.
    pub verdicts: BTreeMap<String, Verdict>,
}

/// Returns the objects of a world.
pub fn translate(settings: &Settings, world: &World) -> Translation {
    let (objects, verdicts) = networks(&world.networks, &settings.owner);
    let mut translation = Translation { objects, verdicts, ..Translation::default() };
    if let Some(vni) = settings.pod_network {
        translate_policies(settings, vni, world, &mut translation);
    }
    translation
}

fn translate_policies(settings: &Settings, vni: u32, world: &World, to: &mut Translation) {
    let owner = &settings.owner;
    let policies: Vec<_> = world.policies.iter().filter_map(Policy::of).collect();
    let mut compiled = Compiled::default();
    policies.iter().for_each(|policy| policy.compile(world, owner, &mut compiled));
    add_fixed(settings, &mut compiled);
    for pod in &world.pods {
        let Some(node) = &pod.node else { continue };
        let key = Key::PortPolicies(node.clone(), owner.named(&pod.uid));
        // Kubernetes' nodes may have longer names than the fleet's hosts, which such a node is not.
        if key.to_string().parse::<Key>().is_err() {
            continue;
        }
        let security_groups = groups_of(pod, &policies, settings);
        let labels = Labels::from([(UID.to_owned(), pod.uid.clone())]);
        let object = PortPoliciesObject { vni, labels, security_groups };
        to.objects.insert(key, Object::PortPolicies(object));
    }
    let Compiled { groups, sets, warnings } = compiled;
    to.warnings = warnings;
    let set = |(name, set)| (Key::Set(name), Object::Set(set));
    to.objects.extend(sets.into_iter().map(set));
    let group = |(name, group)| (Key::SecurityGroup(name), Object::SecurityGroup(group));
    to.objects.extend(groups.into_iter().map(group));
}

/// Returns the groups of a pod: those of its policies, and of each direction in which none isolates it the one that allows
/// everything. A pod that no policy selects has none.
fn groups_of(pod: &Pod, policies: &[Policy<'_>], settings: &Settings) -> Vec<String> {
    let owner = &settings.owner;
    let selecting: Vec<_> = policies.iter().filter(|policy| policy.selects(pod)).collect();
    if selecting.is_empty() {
        return vec![];
    }
    let mut groups: Vec<_> = selecting.iter().map(|it| it.group_of(pod, owner)).collect();
    groups.sort_unstable();
    for direction in [Direction::Ingress, Direction::Egress] {
        if !selecting.iter().any(|policy| policy.isolates(direction)) {
            groups.push(allow_all(owner, direction));
        }
    }
    if !settings.node_addresses.is_empty() {
        groups.push(owner.named(NODES));
    }
    groups
}

/// The group of nodes' traffic with their pods.
const NODES: &str = "nodes";

/// The set of nodes' addresses.
const NODE_ADDRESSES: &str = "node-addresses";

/// Returns the name of the group that allows everything in a direction.
fn allow_all(owner: &Owner, direction: Direction) -> String {
    owner.named(&format!("allow-{direction}"))
}

/// Adds the groups that no policy makes.
fn add_fixed(settings: &Settings, compiled: &mut Compiled) {
    let owner = &settings.owner;
    let mut add = |name: String, rules: Vec<Rule>| {
        let group = SecurityGroupConfig { name: name.clone(), members: vec![], rules };
        compiled.groups.insert(name, group);
    };
    for direction in [Direction::Ingress, Direction::Egress] {
        add(allow_all(owner, direction), vec![Rule::new(Action::Allow, direction)]);
    }
    if settings.node_addresses.is_empty() {
        return;
    }
    let set = owner.named(NODE_ADDRESSES);
    let mut from = Rule::new(Action::Allow, Direction::Ingress);
    let mut to = Rule::new(Action::Allow, Direction::Egress);
    (from.from.net, to.to.net) = (Net::Set(set.clone()), Net::Set(set.clone()));
    add(owner.named(NODES), vec![from, to]);
    compiled.sets.insert(set, settings.node_addresses.clone());
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use k8s_openapi::api::core::v1::Pod as PodObject;
    use k8s_openapi::api::networking::v1::NetworkPolicy;

    use super::*;

    fn settings() -> Settings {
        let owner = Owner::new("test").unwrap();
        Settings { owner, pod_network: Some(100), node_addresses: vec![] }
    }

    fn pod(name: &str, more: &str) -> Option<Pod> {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"shop","uid":"uid-{name}","labels":{{"app":"{name}"}}}},
               "spec":{{"nodeName":"n1","containers":[{{"name":"a","ports":[{{"name":"http","containerPort":80}}]}}]{more}}},
               "status":{{"phase":"Running","podIP":"10.0.0.{}"}}}}"#,
            name.len()
        );
        Pod::of(&serde_json::from_str::<PodObject>(&text).unwrap())
    }

    fn policy(spec: &str) -> NetworkPolicy {
        let text = format!(r#"{{"metadata":{{"name":"p","namespace":"shop"}},"spec":{spec}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    fn world(policies: &[&str]) -> World {
        World {
            namespaces: [("shop".to_owned(), Labels::new())].into(),
            pods: ["web", "cart"].iter().filter_map(|name| pod(name, "")).collect(),
            policies: policies.iter().map(|spec| policy(spec)).collect(),
            networks: vec![],
        }
    }

    fn keys(translation: &Translation) -> Vec<String> {
        translation.objects.keys().map(ToString::to_string).collect()
    }

    fn warnings(spec: &str) -> Vec<String> {
        let translation = translate(&settings(), &world(&[spec]));
        translation.warnings.into_values().flatten().collect()
    }

    #[test]
    fn a_pod_that_comes_changes_sets_and_its_own_key() {
        let spec = r#"{"podSelector":{"matchLabels":{"app":"web"}},
            "ingress":[{"from":[{"podSelector":{"matchLabels":{"app":"cart"}}}]}]}"#;
        let mut world = world(&[spec]);
        let before = translate(&settings(), &world).objects;
        let mut other = pod("cart", "").unwrap();
        (other.uid, other.addresses) =
            ("uid-2".into(), BTreeSet::from([IpAddr::from([10, 0, 0, 9])]));
        world.pods.push(other);
        let after = translate(&settings(), &world).objects;
        let changed = after.iter().filter(|(key, object)| before.get(key) != Some(object));
        let changed: Vec<_> = changed.map(|(key, _)| key.kind().to_owned()).collect();
        assert_eq!(changed, ["policies", "port-policies"]);
    }

    #[test]
    fn pods_in_the_network_of_their_node_and_those_that_have_ended_do_not_count() {
        assert!(pod("web", r#","hostNetwork":true"#).is_none());
        let mut ended: PodObject =
            serde_json::from_str(r#"{"metadata":{"uid":"7"},"spec":{"containers":[]}}"#).unwrap();
        assert!(Pod::of(&ended).is_some());
        ended.status = serde_json::from_str(r#"{"phase":"Succeeded"}"#).unwrap();
        assert!(Pod::of(&ended).is_none());
    }

    #[test]
    fn without_a_pod_network_there_are_no_policies() {
        let settings = Settings { pod_network: None, ..settings() };
        assert_eq!(keys(&translate(&settings, &world(&["{}"]))), [""; 0]);
        let mut world = world(&[]);
        world.pods[0].node = Some("n".repeat(64));
        world.pods[1].node = None;
        let all = keys(&translate(&self::settings(), &world));
        assert!(!all.iter().any(|key| key.starts_with("port-policies")), "{all:?}");
    }

    #[test]
    fn parts_without_an_equivalent_allow_nothing_and_are_named() {
        let sctp = r#"{"ingress":[{"ports":[{"protocol":"SCTP","port":7},{"protocol":"SCTP","port":"http"}]}]}"#;
        assert!(warnings(sctp)[0].contains("SCTP"));
        let translation = translate(&settings(), &world(&[sctp]));
        let rules = translation.objects.iter().filter_map(|(key, object)| match object {
            Object::SecurityGroup(group) if key.to_string().contains("shop.p.") => {
                Some(group.rules.len())
            }
            _ => None,
        });
        assert_eq!(rules.collect::<Vec<_>>(), [0]);
        let block = r#"{"ingress":[{"from":[{"ipBlock":{"cidr":"web"}}]}]}"#;
        assert!(warnings(block)[0].contains("web is no prefix"));
        let egress = r#"{"policyTypes":["Egress"],"egress":[{"to":[{"podSelector":{}}]}]}"#;
        assert!(warnings(egress)[0].contains("ipBlock"));
        assert!(
            warnings(r#"{"ingress":[{"ports":[{"port":80,"endPort":8}]}]}"#)[0].contains("80 to 8")
        );
        assert_eq!(warnings(r#"{"ingress":[{"ports":[{"port":80}]}]}"#), [""; 0]);
    }

    #[test]
    fn pods_that_number_a_named_port_differently_have_different_groups() {
        let mut world = world(&[r#"{"ingress":[{"ports":[{"port":"http"}]}]}"#]);
        let port = (crate::Protocol::Tcp, "http".to_owned());
        world.pods[1].ports.insert(port, [8080].into());
        let translation = translate(&settings(), &world);
        let groups = world.pods.iter().map(|pod| {
            let key = Key::PortPolicies("n1".into(), format!("k8s.test.{}", pod.uid));
            match &translation.objects[&key] {
                Object::PortPolicies(own) => own.security_groups.clone(),
                other => panic!("{other:?}"),
            }
        });
        let groups: Vec<_> = groups.collect();
        assert_ne!(groups[0][0], groups[1][0]);
        assert_eq!(groups[0][1], "k8s.test.allow-egress");
    }
}
