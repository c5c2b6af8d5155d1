//! The check of objects against each other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::Changes;
use crate::config::Port;
use crate::fleet::view::policies;
use crate::fleet::{Key, Object};

/// Returns the faults of the objects `touched`, or of policies, in all that is known.
pub(super) fn check(
    objects: &BTreeMap<Key, Object>,
    touched: &BTreeSet<Key>,
) -> BTreeMap<Key, String> {
    let mut faults = BTreeMap::new();
    let policies = policies(objects);
    if let Err(error) = policies.check() {
        let key = touched.iter().find(|key| key.is_policy()).cloned();
        faults.insert(key.unwrap_or(Key::Connections), error.to_string());
        return faults;
    }
    let owners = owners(objects);
    for key in touched {
        let fault = match (key, objects.get(key)) {
            (Key::Port(host, _), Some(Object::Port(port))) => {
                let fits = policies.acl_of(&port.policies).map(drop);
                let fits = fits.and_then(|()| policies.groups_of(&port.policies).map(drop));
                let fits = fits.map_err(|error| error.to_string());
                fits.and_then(|()| port_fits(host, port, objects)).err()
            }
            (Key::Machine(vni, _), Some(Object::Machine(machine))) => {
                let network = has_network(*vni, objects);
                let taken = machine.addresses.iter().find(|it| owners[&(*vni, **it)] > 1);
                network
                    .err()
                    .or_else(|| taken.map(|it| format!("{it} is the address of two machines")))
            }
            (Key::Route(vni, _), Some(_)) => has_network(*vni, objects).err(),
            (Key::Network(vni), None) => {
                let port = objects.iter().find_map(|(key, object)| match object {
                    Object::Port(port) if port.vni == *vni => Some(key),
                    _ => None,
                });
                port.map(|key| format!("{key} is in this network: delete the port first"))
            }
            (Key::Host(name), None) => {
                let has_port =
                    |(key, _): (&Key, &Object)| matches!(key, Key::Port(host, _) if host == name);
                let lives = objects.contains_key(&Key::Alive(name.clone()));
                match (lives, objects.iter().any(has_port)) {
                    (true, _) => Some("the host lives: stop its daemon first".into()),
                    (false, true) => Some("the host has ports: delete or move them first".into()),
                    (false, false) => None,
                }
            }
            _ => None,
        };
        faults.extend(fault.map(|fault| (key.clone(), fault)));
    }
    faults
}

/// Returns the keys of objects that may need one that is deleted.
pub(super) fn holders(changes: &Changes, after: &BTreeMap<Key, Object>) -> Vec<Key> {
    let is_needed = changes.iter().any(|(key, object)| object.is_none() && key.is_policy());
    let ports = after.keys().filter(|key| matches!(key, Key::Port(..)) && is_needed);
    ports.cloned().collect()
}

/// Returns the keys without which an object is of no use.
pub(super) fn references(key: &Key, object: &Object) -> Vec<Key> {
    match (key, object) {
        (_, Object::Port(port)) => {
            let acl = port.policies.acl.iter().cloned().map(Key::Acl);
            let groups = port.policies.security_groups.iter().cloned().map(Key::SecurityGroup);
            [Key::Network(port.vni)].into_iter().chain(acl).chain(groups).collect()
        }
        (Key::Machine(vni, _) | Key::Route(vni, _), _) => vec![Key::Network(*vni)],
        _ => vec![],
    }
}

fn has_network(vni: u32, objects: &BTreeMap<Key, Object>) -> Result<(), String> {
    match objects.contains_key(&Key::Network(vni)) {
        true => Ok(()),
        false => Err(format!("there is no network {vni}: put one first")),
    }
}

/// Checks that a port has a network and that its machine is written where it is.
fn port_fits(host: &str, port: &Port, objects: &BTreeMap<Key, Object>) -> Result<(), String> {
    has_network(port.vni, objects)?;
    match objects.get(&Key::Machine(port.vni, port.mac)) {
        Some(Object::Machine(machine)) if machine.host.as_deref() == Some(host) => Ok(()),
        Some(_) => Err(format!("its machine {} is on another host", port.mac)),
        None => Err(format!("its machine {} is missing: put the port again", port.mac)),
    }
}

/// Returns the number of machines that have each address of a network.
fn owners(objects: &BTreeMap<Key, Object>) -> BTreeMap<(u32, IpAddr), usize> {
    let mut owners = BTreeMap::new();
    for (key, object) in objects {
        if let (Key::Machine(vni, _), Object::Machine(machine)) = (key, object) {
            for &address in &machine.addresses {
                *owners.entry((*vni, address)).or_default() += 1;
            }
        }
    }
    owners
}
