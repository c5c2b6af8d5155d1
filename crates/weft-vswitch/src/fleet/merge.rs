//! A host's file together with its part of the fleet. An item that both have is as the file says, and of two ports that
//! have the same address or interface the file's or the first one is there.

use std::collections::BTreeSet;

use weft_vpc::ConnectionsConfig;

use super::Part;
use crate::config::{Config, Port};

/// Returns the file with the part in it.
pub(super) fn merge(file: &Config, part: &Part) -> Config {
    let mut merged = file.clone();
    for network in &part.networks {
        // A host that is named twice is this one under another name.
        let peers = network.peers.iter().filter(|&&peer| peer != file.host.address);
        match merged.networks.iter_mut().find(|known| known.vni == network.vni) {
            Some(known) => known.peers.extend(peers),
            None => {
                let peers = peers.copied().collect();
                merged.networks.push(crate::config::Network { peers, ..network.clone() });
            }
        }
    }
    let mut claims: BTreeSet<_> = file.ports.iter().flat_map(Port::claims).collect();
    for port in &part.ports {
        let own = port.claims();
        if own.is_disjoint(&claims) {
            claims.extend(own);
            merged.ports.push(port.clone());
        }
    }
    let key = |route: &crate::config::Route| (route.vni, route.destination());
    let known: BTreeSet<_> = file.routes.iter().map(key).collect();
    let routes = part.routes.iter().filter(|route| !known.contains(&key(route)));
    merged.routes.extend(routes.cloned());
    merge_policies(&mut merged, part);
    merged.port_policies.clone_from(&part.port_policies);
    merged
}

fn merge_policies(merged: &mut Config, part: &Part) {
    let own = &mut merged.policies;
    for (name, set) in &part.policies.sets {
        own.sets.entry(name.clone()).or_insert_with(|| set.clone());
    }
    for acl in &part.policies.acls {
        if !own.acls.iter().any(|known| known.name == acl.name) {
            own.acls.push(acl.clone());
        }
    }
    for group in &part.policies.security_groups {
        if !own.security_groups.iter().any(|known| known.name == group.name) {
            own.security_groups.push(group.clone());
        }
    }
    if own.connections == ConnectionsConfig::default() {
        own.connections = part.policies.connections;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_ports_with_the_same_address_the_files_or_the_first_one_is_there() {
        let port = |name: &str, mac: u8, address: u8| -> Port {
            let text = format!(
                "name = '{name}'\nvni = 7\nmac = '02:00:00:00:00:{mac:02x}'\naddresses = ['10.0.0.{address}/24']\n\
                 tap = {{ interface = '{name}' }}"
            );
            toml::from_str(&text).unwrap()
        };
        let mut file: Config = toml::from_str("[host]\naddress = '10.1.0.2'\n").unwrap();
        file.ports = vec![port("a", 1, 1)];
        let ports = vec![
            port("a", 2, 2),
            port("b", 1, 3),
            port("c", 3, 4),
            port("d", 4, 4),
            port("e", 5, 5),
        ];
        let merged = merge(&file, &Part { ports, ..Part::default() });
        let names: Vec<_> =
            merged.ports.iter().map(|port| (port.name.as_str(), port.mac.0.0[5])).collect();
        assert_eq!(names, [("a", 1), ("c", 3), ("e", 5)]);
        merged.check().unwrap();
    }
}
