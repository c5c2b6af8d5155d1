//! The controller's static routes: OpenConfig's local routing (`openconfig-local-routing`), of one network instance.
//!
//! A route of the controller has the tag 200, the number of the protocol that its routes have in Linux. An operator's
//! route to the same address has another tag or none, and is left alone.

use serde_json::json;
use weft_route::Prefix;
use weft_route::installed::Member;

use super::proto::gnmi::Path;
use super::tree::Tree;
use super::{Edit, GnmiSettings};
use crate::PROTOCOL;

/// Returns the path of the protocol instance that has the static routes.
pub(super) fn protocol(settings: &GnmiSettings) -> Path {
    let name = settings.protocol.as_str();
    Path::of("network-instances")
        .entry("network-instance", &[("name", &settings.instance)])
        .at("protocols")
        .entry("protocol", &[("identifier", "STATIC"), ("name", name)])
}

/// Returns the node of the protocol instance in an answer.
pub(super) fn found<'a>(settings: &GnmiSettings, tree: &'a Tree) -> Option<&'a Tree> {
    tree.entry("network-instances/network-instance", &settings.instance)?
        .entry("protocols/protocol", &format!("STATIC {}", settings.protocol))
}

/// Returns `true` if a static route is the controller's.
pub(super) fn is_ours(route: &Tree) -> bool {
    let tag = route.leaf("config/set-tag").or_else(|| route.leaf("state/set-tag"));
    tag.and_then(|tag| tag.parse().ok()) == Some(PROTOCOL)
}

/// Returns the change that gives a prefix these next hops, with equal weights: the model has none.
pub(crate) fn replace(settings: &GnmiSettings, to: Prefix, members: &[&Member]) -> Edit {
    let next_hops: Vec<serde_json::Value> = members
        .iter()
        .enumerate()
        .map(|(index, member)| {
            let index = index.to_string();
            let mut config = json!({ "index": index });
            if let Some(via) = member.via {
                config["next-hop"] = via.to_string().into();
            }
            json!({
                "index": index,
                "config": config,
                "interface-ref": { "config": { "interface": member.port } },
            })
        })
        .collect();
    let value = json!({
        "openconfig-network-instance:prefix": to.to_string(),
        "openconfig-network-instance:config": { "prefix": to.to_string(), "set-tag": PROTOCOL },
        "openconfig-network-instance:next-hops": { "next-hop": next_hops },
    });
    Edit::Replace(path(settings, to), value)
}

/// Returns the change that removes a prefix's static route.
pub(crate) fn delete(settings: &GnmiSettings, to: Prefix) -> Edit {
    Edit::Delete(path(settings, to))
}

fn path(settings: &GnmiSettings, to: Prefix) -> Path {
    protocol(settings).at("static-routes").entry("static", &[("prefix", &to.to_string())])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(port: &str, via: Option<&str>) -> Member {
        let via = via.map(|via| via.parse().unwrap());
        Member { port: port.into(), via, weight: 1, unreachable: false }
    }

    #[test]
    fn a_route_is_one_entry_of_the_list_with_the_controllers_tag() {
        let settings = GnmiSettings::plain("leaf-0:9339");
        let to = Prefix::host("10.2.0.2".parse::<std::net::IpAddr>().unwrap());
        let (one, two) = (member("Ethernet0", Some("172.16.0.1")), member("Ethernet4", None));
        let path = "/network-instances/network-instance[name=default]/protocols\
                    /protocol[identifier=STATIC][name=static]/static-routes/static[prefix=10.2.0.2/32]";
        let Edit::Replace(at, value) = replace(&settings, to, &[&one, &two]) else { panic!() };
        assert_eq!(at.to_string(), path);
        assert_eq!(
            value,
            json!({
                "openconfig-network-instance:prefix": "10.2.0.2/32",
                "openconfig-network-instance:config": { "prefix": "10.2.0.2/32", "set-tag": 200 },
                "openconfig-network-instance:next-hops": { "next-hop": [
                    { "index": "0", "config": { "index": "0", "next-hop": "172.16.0.1" },
                      "interface-ref": { "config": { "interface": "Ethernet0" } } },
                    { "index": "1", "config": { "index": "1" },
                      "interface-ref": { "config": { "interface": "Ethernet4" } } },
                ] },
            })
        );
        assert_eq!(delete(&settings, to).to_string(), format!("delete {path}"));
    }
}
