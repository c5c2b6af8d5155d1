//! The networks of this host, and the routes that it announces.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use weft_wire::MacAddr;

use crate::attribute::Attributes;
use crate::machine::Machine;
use crate::route::{Nlri, RouteDistinguisher, RouteKey, RouteTarget};
use crate::update::{self, Context};

/// This speaker's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeakerConfig {
    /// The AS number of this host.
    pub asn: u32,
    /// Its BGP identifier, which no other speaker has.
    pub router_id: Ipv4Addr,
    /// Its address as an end of VXLAN tunnels.
    pub vtep: IpAddr,
}

/// The machines of this host's ports, by network.
pub(crate) type Machines = BTreeMap<(u32, MacAddr), Machine>;

/// A network of this host.
#[derive(Debug)]
struct Network {
    /// The number in the distinguisher of its routes.
    number: u16,
    targets: BTreeSet<RouteTarget>,
}

/// A route of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnRoute {
    label: u32,
    attributes: Attributes,
}

/// The networks and routes of this host.
#[derive(Debug)]
pub(crate) struct Own {
    config: SpeakerConfig,
    networks: BTreeMap<u32, Network>,
    routes: BTreeMap<RouteKey, OwnRoute>,
}

impl Own {
    pub(crate) const fn new(config: SpeakerConfig) -> Self {
        Self { config, networks: BTreeMap::new(), routes: BTreeMap::new() }
    }

    /// Replaces the networks, by number, with their route targets. Those that stay keep their distinguishers.
    pub(crate) fn set_networks(&mut self, networks: &BTreeMap<u32, BTreeSet<RouteTarget>>) {
        self.networks.retain(|vni, _| networks.contains_key(vni));
        for (&vni, targets) in networks {
            let number = self.number_of(vni);
            self.networks.insert(vni, Network { number, targets: targets.clone() });
        }
    }

    /// Returns the number in the distinguisher of a network's routes: it has two octets, and the network's number three.
    fn number_of(&self, vni: u32) -> u16 {
        if let Some(known) = self.networks.get(&vni) {
            return known.number;
        }
        let first = u16::try_from(vni & 0xffff).expect("16 bits");
        let is_free = |number: &u16| self.networks.values().all(|it| it.number != *number);
        let mut numbers = (0..=u16::MAX).map(|step| first.wrapping_add(step));
        numbers.find(is_free).unwrap_or(first)
    }

    /// Makes the routes of the networks and of machines that are here. Returns the keys of those that changed.
    pub(crate) fn refresh(&mut self, machines: &Machines) -> Vec<RouteKey> {
        let routes = self.routes(machines);
        let changed = routes.iter().filter(|(key, route)| self.routes.get(key) != Some(route));
        let gone = self.routes.keys().filter(|key| !routes.contains_key(key));
        let keys = changed.map(|(key, _)| key).chain(gone).copied().collect();
        self.routes = routes;
        keys
    }

    fn routes(&self, machines: &Machines) -> BTreeMap<RouteKey, OwnRoute> {
        let mut routes = BTreeMap::new();
        let vtep = self.config.vtep;
        for (&vni, network) in &self.networks {
            let rd = RouteDistinguisher::new(self.config.router_id, network.number);
            let key = RouteKey::InclusiveMulticast { rd, tag: 0, originator: vtep };
            let attributes = Attributes { flood_vni: Some(vni), ..self.attributes(vni, network) };
            routes.insert(key, OwnRoute { label: 0, attributes });
        }
        for (&(vni, mac), machine) in machines.iter().filter(|(_, it)| it.is_here) {
            let Some(network) = self.networks.get(&vni) else { continue };
            let rd = RouteDistinguisher::new(self.config.router_id, network.number);
            let addresses = machine.addresses.iter().copied().map(Some);
            for address in core::iter::once(None).chain(addresses) {
                let sequence = machine.sequence;
                let attributes = Attributes { sequence, ..self.attributes(vni, network) };
                let key = RouteKey::MacIp { rd, tag: 0, mac, address };
                routes.insert(key, OwnRoute { label: vni, attributes });
            }
        }
        routes
    }

    fn attributes(&self, vni: u32, network: &Network) -> Attributes {
        let targets = match network.targets.is_empty() {
            true => Vec::from([RouteTarget::of_network(self.config.asn, vni)]),
            false => network.targets.iter().copied().collect(),
        };
        Attributes { targets, ..Attributes::new(self.config.vtep) }
    }

    /// Appends the message that announces a route, or withdraws it if there is none of this key.
    pub(crate) fn emit(&self, key: RouteKey, context: &Context, out: &mut Vec<u8>) {
        match self.routes.get(&key) {
            Some(route) => {
                let nlri = Nlri { key, label: route.label };
                update::announce(&nlri, &route.attributes, context, out);
            }
            None => update::withdraw(key, out),
        }
    }

    /// Returns the keys of all routes.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &RouteKey> {
        self.routes.keys()
    }

    /// Returns the number of routes that a neighbour has which lacks those of `unsent`.
    pub(crate) fn count_without(&self, unsent: &BTreeSet<RouteKey>) -> usize {
        self.routes.len() - unsent.iter().filter(|key| self.routes.contains_key(key)).count()
    }
}
