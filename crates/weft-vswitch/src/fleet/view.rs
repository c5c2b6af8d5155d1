//! The objects of its fleet that one host knows, and the part of a configuration that follows from them.
//!
//! A bad value changes nothing: the object's former value stays, and the fault is listed by key. So it is with a change
//! of policies that others contradict, a list whose set is missing for example; it is made as soon as it fits.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weft_vpc::{Policies, PoliciesError, PortPolicies, Prefix};
use weft_wire::MacAddr;

use super::object::{Host, Machine, NetworkObject, RouteObject};
use super::port_policies::PortPoliciesObject;
use super::{Key, Object};
use crate::config::{Mac, Network, Port, Route, Row};

/// The addresses of machines, by network and Ethernet address.
pub(super) type Machines = BTreeMap<(u32, Mac), BTreeSet<IpAddr>>;

/// The objects that a host knows, and their faults.
#[derive(Clone, Debug)]
pub struct View {
    /// The host's name.
    name: String,
    objects: BTreeMap<Key, Object>,
    /// Numbers of machines on each host: what concerns a host without any concerns this one little.
    machines_of: BTreeMap<String, usize>,
    /// The policies and the host's ports, which must fit each other.
    fitted: BTreeMap<Key, Object>,
    /// Changes that other objects contradict; `None` is a removal.
    pending: BTreeMap<Key, Option<Object>>,
    /// The faults by key.
    faults: BTreeMap<String, String>,
    /// The machines of the host's ports that are not of the fleet.
    local: Machines,
}

/// A part of a configuration, beside a host's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The networks of the host's ports, with the other hosts of each.
    pub networks: Vec<Network>,
    /// The host's ports.
    pub ports: Vec<Port>,
    /// The security groups of its ports that are added by command.
    pub port_policies: Vec<PortPoliciesObject>,
    /// The places of other hosts' machines, and the next hops of prefixes.
    pub routes: Vec<Route>,
    /// The fleet's policies.
    pub policies: Policies,
    /// The public keys of the fleet's hosts.
    pub identities: BTreeSet<String>,
    /// The faults by key.
    pub faults: BTreeMap<String, String>,
}

impl View {
    /// Returns the view of a host that knows nothing yet.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            objects: BTreeMap::new(),
            machines_of: BTreeMap::new(),
            fitted: BTreeMap::new(),
            pending: BTreeMap::new(),
            faults: BTreeMap::new(),
            local: Machines::new(),
        }
    }

    /// Returns the objects.
    pub fn objects(&self) -> impl Iterator<Item = (&Key, &Object)> {
        self.fitted.iter().chain(&self.objects)
    }

    /// Returns the networks of the host's ports, those that are not of the fleet among them, and those in which it still has
    /// places of such ports to delete.
    pub fn networks(&self) -> BTreeSet<u32> {
        let local = self.local.keys().map(|&(vni, _)| vni);
        let written = self.written_by_host().map(|(vni, _)| vni);
        self.ports().map(|port| port.vni).chain(local).chain(written).collect()
    }

    /// Returns the machines of the host's ports that are not of the fleet.
    pub(super) const fn local(&self) -> &Machines {
        &self.local
    }

    /// Replaces the machines of the host's ports that are not of the fleet.
    pub(super) fn set_local(&mut self, local: Machines) {
        self.local = local;
    }

    /// Returns the object of a key, unless it is a policy or a port.
    pub(super) fn get(&self, key: &Key) -> Option<&Object> {
        self.objects.get(key)
    }

    /// Returns the keys of the machines that the host has written by itself.
    pub(super) fn written_by_host(&self) -> impl Iterator<Item = (u32, Mac)> {
        self.objects.iter().filter_map(|(key, object)| match (key, object) {
            (Key::Machine(vni, mac), Object::Machine(machine))
                if machine.by_host && machine.host.as_ref() == Some(&self.name) =>
            {
                Some((*vni, *mac))
            }
            _ => None,
        })
    }

    fn ports(&self) -> impl Iterator<Item = &Port> {
        self.fitted.iter().filter_map(|(key, object)| match (key, object) {
            (Key::Port(host, _), Object::Port(port)) if *host == self.name => Some(&**port),
            _ => None,
        })
    }

    /// Applies changes of keys of etcd; `None` is a deletion. Returns `true` if the host's part may have changed.
    pub fn apply<'a>(
        &mut self,
        prefix: &str,
        changes: impl IntoIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> bool {
        let mut contradictable = BTreeMap::new();
        let mut changed = false;
        for (path, value) in changes {
            let text = String::from_utf8_lossy(path).into_owned();
            changed |= self.faults.remove(&text).is_some();
            let parsed = Key::parse(prefix, path).map_err(|error| error.to_string());
            let parsed = parsed.and_then(|key| match value {
                Some(value) => match Object::parse(&key, value) {
                    Ok(object) => Ok((key, Some(object))),
                    Err(error) => Err(error.to_string()),
                },
                None => Ok((key, None)),
            });
            match parsed {
                Ok((key, object)) if is_fitted(&key) => {
                    contradictable.insert(key, object);
                }
                Ok((key, object)) => changed |= self.set(key, object),
                Err(_) if value.is_none() => {}
                Err(fault) => {
                    self.faults.insert(text, fault);
                    changed = true;
                }
            }
        }
        if contradictable.is_empty() {
            return changed;
        }
        for (key, object) in std::mem::take(&mut self.pending) {
            contradictable.entry(key).or_insert(object);
        }
        self.fit(prefix, contradictable);
        true
    }

    /// Sets an object that fits whatever is there. Returns `true` if the host's part may have changed.
    fn set(&mut self, key: Key, object: Option<Object>) -> bool {
        let old = self.objects.get(&key);
        if old == object.as_ref() {
            return false;
        }
        let identity = |object: Option<&Object>| match object {
            Some(Object::Host(host)) => host.identity.clone(),
            _ => None,
        };
        let concerns = match &key {
            Key::Host(name) => {
                self.machines_of.contains_key(name) || identity(old) != identity(object.as_ref())
            }
            Key::Alive(_) => false,
            _ => true,
        };
        let host = |object: Option<&Object>| match object {
            Some(Object::Machine(machine)) => machine.host.clone(),
            _ => None,
        };
        let (left, entered) = (host(old), host(object.as_ref()));
        set(&mut self.objects, key, object);
        if let Some(name) = entered {
            *self.machines_of.entry(name).or_default() += 1;
        }
        if let Some(name) = left
            && let Some(count) = self.machines_of.get_mut(&name)
        {
            *count -= 1;
            if *count == 0 {
                self.machines_of.remove(&name);
            }
        }
        concerns
    }

    /// Replaces all objects whose keys begin with `path` by those of a list.
    pub fn replace<'a>(
        &mut self,
        prefix: &str,
        path: &str,
        entries: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) {
        let mut changes: BTreeMap<Vec<u8>, Option<&[u8]>> = BTreeMap::new();
        let known = self
            .objects()
            .map(|(key, _)| key)
            .chain(self.pending.keys())
            .map(|key| key.path(prefix));
        let known = known.chain(self.faults.keys().cloned());
        changes.extend(known.filter(|it| it.starts_with(path)).map(|it| (it.into_bytes(), None)));
        changes.extend(entries.into_iter().map(|(key, value)| (key.to_vec(), Some(value))));
        self.apply(prefix, changes.iter().map(|(key, value)| (key.as_slice(), *value)));
    }

    /// Forgets a network in which the host has no port any more.
    pub fn forget_network(&mut self, prefix: &str, vni: u32) {
        let of_network = self.objects.keys().filter(|key| key.vni() == Some(vni));
        for key in of_network.cloned().collect::<Vec<_>>() {
            self.set(key, None);
        }
        let path = Key::network(prefix, vni);
        self.faults.retain(|key, _| !key.starts_with(&path));
    }

    /// Makes changes of ports and policies: all together if they fit, and else each that fits what is there.
    fn fit(&mut self, prefix: &str, changes: BTreeMap<Key, Option<Object>>) {
        for key in changes.keys() {
            self.faults.remove(&key.path(prefix));
        }
        let mut fitted = self.fitted.clone();
        changes.iter().for_each(|(key, object)| set(&mut fitted, key.clone(), object.clone()));
        if self.contradiction(&fitted).is_none() {
            self.fitted = fitted;
            return;
        }
        // Referred objects come first, so that most changes fit at once; the rest waits for the next change.
        for (key, object) in changes {
            let mut fitted = self.fitted.clone();
            set(&mut fitted, key.clone(), object.clone());
            match self.contradiction(&fitted) {
                None => self.fitted = fitted,
                Some(fault) => {
                    self.faults.insert(key.path(prefix), fault);
                    self.pending.insert(key, object);
                }
            }
        }
    }

    /// Returns the reason that policies and the host's ports do not fit each other.
    fn contradiction(&self, objects: &BTreeMap<Key, Object>) -> Option<String> {
        let policies = policies(objects);
        if let Err(error) = policies.check() {
            return Some(error.to_string());
        }
        let fits = |port: &Port| -> Result<(), PoliciesError> {
            policies.acl_of(&port.policies)?;
            policies.groups_of(&port.policies).map(drop)
        };
        let groups = |names: &[String]| {
            let security_groups = names.to_vec();
            policies.groups_of(&PortPolicies { security_groups, ..PortPolicies::default() })
        };
        objects.iter().find_map(|(key, object)| match (key, object) {
            (Key::Port(host, name), Object::Port(port)) if *host == self.name => {
                fits(port).err().map(|error| format!("port {name}: {error}"))
            }
            (Key::PortPolicies(_, name), Object::PortPolicies(own)) => {
                let error = groups(&own.security_groups).err();
                error.map(|error| format!("port policies {name}: {error}"))
            }
            _ => None,
        })
    }

    /// Returns the part of this host's configuration.
    pub fn part(&self, prefix: &str) -> Part {
        let mut part = Part {
            policies: policies(&self.fitted),
            faults: self.faults.clone(),
            identities: self.hosts().filter_map(|(_, host)| host.identity.clone()).collect(),
            ..Part::default()
        };
        let own: BTreeSet<_> = self.ports().map(|port| (port.vni, port.mac)).collect();
        for vni in self.networks() {
            match self.objects.get(&Key::Network(vni)) {
                Some(Object::Network(network)) => self.add_network(vni, network, &own, &mut part),
                // The host's file has it then.
                _ if !self.ports().any(|port| port.vni == vni) => {}
                _ => {
                    let fault = "there is no such network, so that its ports are left out";
                    part.faults.insert(Key::Network(vni).path(prefix), fault.into());
                }
            }
        }
        let known: BTreeSet<_> = part.networks.iter().map(|network| network.vni).collect();
        part.ports = self.ports().filter(|port| known.contains(&port.vni)).cloned().collect();
        let of_host = self.fitted.iter().filter_map(|(key, object)| match (key, object) {
            (Key::PortPolicies(host, _), Object::PortPolicies(own)) if *host == self.name => {
                Some(own.clone())
            }
            _ => None,
        });
        part.port_policies = of_host.collect();
        part
    }

    fn hosts(&self) -> impl Iterator<Item = (&str, &Host)> {
        self.objects.iter().filter_map(|(key, object)| match (key, object) {
            (Key::Host(name), Object::Host(host)) => Some((name.as_str(), host)),
            _ => None,
        })
    }

    /// Adds a network with the places of its machines, but for those of this host's own ports.
    fn add_network(
        &self,
        vni: u32,
        network: &NetworkObject,
        own: &BTreeSet<(u32, Mac)>,
        part: &mut Part,
    ) {
        let mut peers = BTreeSet::new();
        let first = Key::Machine(vni, Mac(MacAddr([0; 6])));
        let in_network =
            |(key, _): &(&Key, &Object)| matches!(key, Key::Machine(of, _) if *of == vni);
        for (key, object) in self.objects.range(first..).take_while(in_network) {
            let (Key::Machine(_, mac), Object::Machine(machine)) = (key, object) else { continue };
            // A port that has just moved here counts before the place that is written of it.
            let Some(peer) = self.place(machine).filter(|_| !own.contains(&(vni, *mac))) else {
                continue;
            };
            peers.insert(peer);
            let (mac, addresses) = (*mac, machine.addresses.clone());
            part.routes.push(Route { vni, row: Row::Machine { mac, peer, addresses } });
        }
        let first = Key::Route(vni, Prefix::ALL_V4);
        let in_network =
            |(key, _): &(&Key, &Object)| matches!(key, Key::Route(of, _) if *of == vni);
        for (key, object) in self.objects.range(first..).take_while(in_network) {
            let (Key::Route(_, to), Object::Route(RouteObject { via })) = (key, object) else {
                continue;
            };
            part.routes.push(Route { vni, row: Row::Prefix { to: *to, via: *via } });
        }
        part.networks.push(network.network(vni, peers));
    }

    /// Returns the address of a machine's host; `None` while that host is not registered, and for this host.
    fn place(&self, machine: &Machine) -> Option<IpAddr> {
        let Some(name) = machine.host.as_ref().filter(|_| machine.peer.is_none()) else {
            return machine.peer;
        };
        match self.objects.get(&Key::Host(name.clone()))? {
            Object::Host(host) if *name != self.name => Some(host.address),
            _ => None,
        }
    }
}

/// Returns `true` for objects that name policies, or are some.
const fn is_fitted(key: &Key) -> bool {
    key.is_policy() || matches!(key, Key::Port(..) | Key::PortPolicies(..))
}

fn set(objects: &mut BTreeMap<Key, Object>, key: Key, object: Option<Object>) {
    match object {
        Some(object) => objects.insert(key, object),
        None => objects.remove(&key),
    };
}

/// Returns the policies among objects.
pub(super) fn policies(objects: &BTreeMap<Key, Object>) -> Policies {
    let mut policies = Policies::default();
    for (key, object) in objects.iter().take_while(|(key, _)| key.is_policy()) {
        match (key, object) {
            (Key::Set(name), Object::Set(set)) => {
                policies.sets.insert(name.clone(), set.clone());
            }
            (_, Object::SecurityGroup(group)) => policies.security_groups.push(group.clone()),
            (_, Object::Acl(acl)) => policies.acls.push(acl.clone()),
            (_, Object::Connections(connections)) => policies.connections = *connections,
            _ => {}
        }
    }
    policies
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "/weft";

    fn view(entries: &[(&str, &str)]) -> View {
        let mut view = View::new("h1");
        change(&mut view, entries);
        view
    }

    /// Sets keys; an empty value deletes one.
    fn change(view: &mut View, entries: &[(&str, &str)]) {
        let paths: Vec<_> = entries.iter().map(|(key, _)| format!("{PREFIX}/v1/{key}")).collect();
        let value = |text: &'static str| (!text.is_empty()).then_some(text.as_bytes());
        let values: Vec<_> =
            entries.iter().map(|(_, text)| text.to_string().leak()).map(|it| value(it)).collect();
        view.apply(PREFIX, paths.iter().zip(values).map(|(path, value)| (path.as_bytes(), value)));
    }

    fn port(name: &str, mac: u8, more: &str) -> String {
        format!(
            r#"{{"name":"{name}","vni":100,"mac":"02:00:00:00:07:{mac:02x}","tap":{{"interface":"{name}"}}{more}}}"#
        )
    }

    const SETTINGS: (&str, &str) = ("networks/100/settings", "{}");
    const H2: (&str, &str) = ("hosts/h2", r#"{"address":"10.2.0.2"}"#);

    #[test]
    fn machines_of_other_hosts_are_routes_and_their_hosts_peers() {
        let view = view(&[
            SETTINGS,
            H2,
            ("hosts/h1", r#"{"address":"10.1.0.2"}"#),
            ("ports/h1/web", &port("web", 1, "")),
            ("networks/100/machines/02:00:00:00:07:01", r#"{"host":"h1"}"#),
            (
                "networks/100/machines/02:00:00:00:07:02",
                r#"{"host":"h2","addresses":["192.168.7.2"]}"#,
            ),
            ("networks/100/machines/02:00:00:00:07:03", r#"{"host":"h3"}"#),
            ("networks/100/machines/02:00:00:00:07:04", r#"{"peer":"10.4.0.2"}"#),
            ("networks/100/routes/10.9.0.0_16", r#"{"via":"192.168.7.2"}"#),
            ("networks/200/machines/02:00:00:00:07:09", r#"{"host":"h2"}"#),
        ]);
        let part = view.part(PREFIX);
        assert_eq!(part.ports.len(), 1);
        assert!(part.faults.is_empty(), "{part:?}");
        let peers: Vec<_> = part.networks[0].peers.iter().map(ToString::to_string).collect();
        assert_eq!(peers, ["10.2.0.2", "10.4.0.2"]);
        assert!(!part.networks[0].flood);
        let to: Vec<_> = part.routes.iter().map(|it| it.destination().to_string()).collect();
        assert_eq!(to, ["02:00:00:00:07:02", "02:00:00:00:07:04", "10.9.0.0/16"]);
    }

    #[test]
    fn a_host_without_machines_here_concerns_no_part() {
        let mut view = view(&[SETTINGS, ("ports/h1/web", &port("web", 1, ""))]);
        let host = |view: &mut View| {
            view.apply(
                PREFIX,
                [(&b"/weft/v1/hosts/h2"[..], Some(&br#"{"address":"10.2.0.2"}"#[..]))],
            )
        };
        let machine = b"/weft/v1/networks/100/machines/02:00:00:00:07:02";
        assert!(!host(&mut view), "nothing of it is here");
        assert!(view.apply(PREFIX, [(&machine[..], Some(&br#"{"host":"h2"}"#[..]))]));
        assert!(!host(&mut view), "it is known");
        let moved = br#"{"address":"10.3.0.2"}"#;
        assert!(view.apply(PREFIX, [(&b"/weft/v1/hosts/h2"[..], Some(&moved[..]))]));
        assert!(view.apply(PREFIX, [(&machine[..], None)]));
        assert!(!host(&mut view));
    }

    #[test]
    fn a_moving_port_is_here_before_its_machine_is() {
        let mut view = view(&[
            SETTINGS,
            H2,
            ("ports/h1/web", &port("web", 1, "")),
            ("networks/100/machines/02:00:00:00:07:01", r#"{"host":"h2"}"#),
        ]);
        assert!(view.part(PREFIX).routes.is_empty());
        change(&mut view, &[("ports/h1/web", ""), ("ports/h1/db", &port("db", 2, ""))]);
        assert_eq!(view.part(PREFIX).routes.len(), 1);
    }

    #[test]
    fn bad_values_keep_what_was_there_and_are_named() {
        let mut view = view(&[SETTINGS, ("ports/h1/web", &port("web", 1, ""))]);
        let before = view.part(PREFIX);
        for bad in ["{", r#"{"name":"other"}"#, "null"] {
            change(&mut view, &[("ports/h1/web", bad), ("networks/100/settings", "[7]")]);
            let part = view.part(PREFIX);
            assert_eq!((&part.ports, &part.networks), (&before.ports, &before.networks));
            let keys: Vec<_> = part.faults.keys().map(String::as_str).collect();
            assert_eq!(keys, ["/weft/v1/networks/100/settings", "/weft/v1/ports/h1/web"]);
        }
        change(&mut view, &[("ports/h1/web", &port("web", 1, "")), SETTINGS]);
        assert_eq!(view.part(PREFIX), before);
    }

    #[test]
    fn a_port_waits_for_its_list_and_a_list_in_use_stays() {
        let acl = r#"{"name":"edge","rules":["deny ingress from @web"]}"#;
        let mut view = view(&[SETTINGS, ("ports/h1/web", &port("web", 1, r#","acl":"edge""#))]);
        assert!(view.part(PREFIX).ports.is_empty());
        assert!(view.part(PREFIX).faults["/weft/v1/ports/h1/web"].contains("edge"));
        // The list itself waits for its set.
        change(&mut view, &[("policies/acl/edge", acl)]);
        assert!(view.part(PREFIX).policies.acls.is_empty());
        change(&mut view, &[("policies/set/web", r#"["10.0.0.0/8"]"#)]);
        let whole = view.part(PREFIX);
        assert_eq!((whole.ports.len(), whole.policies.acls.len(), whole.faults.len()), (1, 1, 0));
        change(&mut view, &[("policies/acl/edge", "")]);
        let part = view.part(PREFIX);
        assert_eq!((&part.ports, &part.policies), (&whole.ports, &whole.policies));
        assert!(part.faults["/weft/v1/policies/acl/edge"].contains("port web"), "{part:?}");
        change(&mut view, &[("ports/h1/web", "")]);
        assert_eq!(view.part(PREFIX).policies.acls, []);
    }

    #[test]
    fn policies_of_ports_added_by_command_wait_for_their_groups() {
        let own = r#"{"vni":100,"labels":{"uid":"7"},"security-groups":["web"]}"#;
        let mut view = view(&[("port-policies/h1/7", own)]);
        assert!(view.part(PREFIX).port_policies.is_empty());
        assert!(view.part(PREFIX).faults["/weft/v1/port-policies/h1/7"].contains("web"));
        change(&mut view, &[("policies/security-group/web", r#"{"name":"web"}"#)]);
        assert_eq!(view.part(PREFIX).port_policies[0].security_groups, ["web"]);
        change(&mut view, &[("policies/security-group/web", "")]);
        assert_eq!(view.part(PREFIX).policies.security_groups.len(), 1, "it is in use");
        change(&mut view, &[("port-policies/h1/7", "")]);
        assert_eq!(view.part(PREFIX).policies.security_groups, []);
    }

    #[test]
    fn a_network_of_local_ports_is_followed_and_may_be_the_files_alone() {
        let mac = "02:00:00:00:07:05".parse().unwrap();
        let mut view = view(&[SETTINGS, H2]);
        view.set_local(Machines::from([
            ((100, mac), BTreeSet::new()),
            ((7, mac), BTreeSet::new()),
        ]));
        assert_eq!(view.networks(), BTreeSet::from([7, 100]));
        change(
            &mut view,
            &[
                ("networks/100/machines/02:00:00:00:07:02", r#"{"host":"h2"}"#),
                ("networks/100/machines/02:00:00:00:07:05", r#"{"host":"h1","by-host":true}"#),
            ],
        );
        let part = view.part(PREFIX);
        assert!(part.faults.is_empty(), "{part:?}");
        assert_eq!(
            (part.networks.len(), part.networks[0].peers.len(), part.routes.len()),
            (1, 1, 1)
        );
        assert_eq!(view.written_by_host().collect::<Vec<_>>(), [(100, mac)]);
        view.set_local(Machines::new());
        assert_eq!(view.networks(), BTreeSet::from([100]), "until the place is deleted");
        change(&mut view, &[("networks/100/machines/02:00:00:00:07:05", "")]);
        assert_eq!(view.networks(), BTreeSet::new());
    }

    #[test]
    fn a_list_replaces_what_it_covers() {
        let mut view = view(&[SETTINGS, H2, ("ports/h1/web", &port("web", 1, ""))]);
        let (key, db) = (b"/weft/v1/ports/h1/db".as_slice(), port("db", 2, ""));
        view.replace(PREFIX, "/weft/v1/ports/h1/", [(key, db.as_bytes())]);
        let part = view.part(PREFIX);
        assert_eq!(part.ports.iter().map(|port| &port.name).collect::<Vec<_>>(), ["db"]);
        assert_eq!(view.objects().count(), 3);
        view.forget_network(PREFIX, 100);
        assert!(
            view.part(PREFIX).faults["/weft/v1/networks/100/settings"].contains("no such network")
        );
    }
}
