//! The routes that neighbours announced, and those of them that a network of this host imports.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::{IpAddr, Ipv4Addr};

use weft_wire::MacAddr;

use crate::attribute::Attributes;
use crate::route::{Nlri, RouteDistinguisher, RouteKey, RouteTarget};

/// Maximum number of hosts that receive copies of a network's broadcasts: each sender copies for all of them.
pub const MAX_FLOODED: usize = 1_024;

/// The smallest address and key, at which a range begins.
const FIRST_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const FIRST_KEY: RouteKey =
    RouteKey::MacIp { rd: RouteDistinguisher([0; 8]), tag: 0, mac: MacAddr([0; 6]), address: None };

/// The networks of this host with the targets that they import; none stands for the target of any AS and the network's number.
pub(crate) type Targets = BTreeMap<u32, BTreeSet<RouteTarget>>;

/// A route as it was announced.
#[derive(Clone, Debug)]
struct Received {
    /// The network's number; `None` if the route names no network.
    vni: Option<u32>,
    attributes: Arc<Attributes>,
    is_imported: bool,
}

/// Numbers of imported routes to a host in a network.
#[derive(Clone, Copy, Debug, Default)]
struct VtepRoutes {
    floods: usize,
    machines: usize,
}

/// The best place of a machine on another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Best {
    pub(crate) vtep: IpAddr,
    pub(crate) sequence: u32,
    pub(crate) is_sticky: bool,
}

/// The entries that have changed since the last look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changed {
    pub(crate) machines: BTreeSet<(u32, MacAddr)>,
    pub(crate) addresses: BTreeSet<(u32, IpAddr)>,
    pub(crate) vteps: BTreeSet<u32>,
}

/// The routes of all neighbours.
#[derive(Debug)]
pub(crate) struct Rib {
    /// The address of this host, to which no route of others leads.
    own: IpAddr,
    targets: Targets,
    routes: BTreeMap<(IpAddr, RouteKey), Received>,
    counts: BTreeMap<IpAddr, usize>,
    /// Imported routes of machines: network, machine, neighbour, key.
    by_machine: BTreeSet<(u32, MacAddr, IpAddr, RouteKey)>,
    /// The routes with an IP address: network, address, neighbour, key.
    by_address: BTreeSet<(u32, IpAddr, IpAddr, RouteKey)>,
    vteps: BTreeMap<(u32, IpAddr), VtepRoutes>,
    pub(crate) changed: Changed,
}

impl Rib {
    pub(crate) fn new(own: IpAddr) -> Self {
        Self {
            own,
            targets: Targets::new(),
            routes: BTreeMap::new(),
            counts: BTreeMap::new(),
            by_machine: BTreeSet::new(),
            by_address: BTreeSet::new(),
            vteps: BTreeMap::new(),
            changed: Changed::default(),
        }
    }

    /// Replaces the networks, and imports what they want.
    pub(crate) fn set_targets(&mut self, targets: Targets) {
        self.targets = targets;
        let mut routes = core::mem::take(&mut self.routes);
        for (&(neighbour, key), received) in &mut routes {
            let imports = self.imports(&key, received);
            if imports != received.is_imported {
                self.index((neighbour, key), received, imports);
                received.is_imported = imports;
            }
        }
        self.routes = routes;
    }

    /// Keeps a route of a neighbour, in place of its former one of that key.
    pub(crate) fn insert(&mut self, neighbour: IpAddr, nlri: &Nlri, attributes: &Arc<Attributes>) {
        self.remove(neighbour, nlri.key);
        let vni = match nlri.key {
            RouteKey::MacIp { .. } => Some(nlri.label),
            RouteKey::InclusiveMulticast { .. } => attributes.flood_vni,
        };
        let mut received = Received { vni, attributes: Arc::clone(attributes), is_imported: false };
        received.is_imported = self.imports(&nlri.key, &received);
        if received.is_imported {
            self.index((neighbour, nlri.key), &received, true);
        }
        self.routes.insert((neighbour, nlri.key), received);
        *self.counts.entry(neighbour).or_default() += 1;
    }

    /// Forgets a route of a neighbour.
    pub(crate) fn remove(&mut self, neighbour: IpAddr, key: RouteKey) {
        let Some(received) = self.routes.remove(&(neighbour, key)) else { return };
        if received.is_imported {
            self.index((neighbour, key), &received, false);
        }
        if let Some(count) = self.counts.get_mut(&neighbour) {
            *count -= 1;
        }
    }

    /// Forgets all routes of a neighbour.
    pub(crate) fn remove_neighbour(&mut self, neighbour: IpAddr) {
        let all = self.routes.range((neighbour, FIRST_KEY)..);
        let all = all.take_while(|((of, _), _)| *of == neighbour).map(|((_, key), _)| *key);
        for key in all.collect::<Vec<_>>() {
            self.remove(neighbour, key);
        }
        self.counts.remove(&neighbour);
    }

    /// Returns the number of routes of a neighbour.
    pub(crate) fn count(&self, neighbour: IpAddr) -> usize {
        self.counts.get(&neighbour).copied().unwrap_or(0)
    }

    /// Returns `true` if a network of this host uses a route.
    fn imports(&self, key: &RouteKey, received: &Received) -> bool {
        let attributes = &received.attributes;
        let Some(vni) = received.vni else { return false };
        let Some(targets) = self.targets.get(&vni) else { return false };
        let wants = |target: &RouteTarget| match targets.is_empty() {
            true => target.is_of_network(vni),
            false => targets.contains(target),
        };
        let is_machine = match key {
            RouteKey::MacIp { mac, .. } => !mac.is_group() && *mac != MacAddr([0; 6]),
            RouteKey::InclusiveMulticast { .. } => true,
        };
        let next_hop = attributes.next_hop;
        let leads_elsewhere = is_unicast(next_hop)
            && next_hop != self.own
            && next_hop.is_ipv4() == self.own.is_ipv4();
        // A tag means several broadcast domains in one network, which there are none of here.
        is_machine
            && leads_elsewhere
            && key.tag() == 0
            && attributes.is_vxlan
            && attributes.targets.iter().any(wants)
    }

    /// Adds an imported route to the indices, or removes it.
    fn index(&mut self, (neighbour, key): (IpAddr, RouteKey), received: &Received, add: bool) {
        let Some(vni) = received.vni else { return };
        let vtep = (vni, received.attributes.next_hop);
        let routes = self.vteps.entry(vtep).or_default();
        match key {
            RouteKey::InclusiveMulticast { .. } => step(&mut routes.floods, add),
            RouteKey::MacIp { mac, address, .. } => {
                step(&mut routes.machines, add);
                set(&mut self.by_machine, (vni, mac, neighbour, key), add);
                self.changed.machines.insert((vni, mac));
                if let Some(address) = address {
                    set(&mut self.by_address, (vni, address, neighbour, key), add);
                    self.changed.addresses.insert((vni, address));
                }
            }
        }
        if routes.floods + routes.machines == 0 {
            self.vteps.remove(&vtep);
        }
        self.changed.vteps.insert(vni);
    }

    /// Returns the imported routes of a machine: their keys and attributes.
    fn of_machine(
        &self,
        (vni, mac): (u32, MacAddr),
    ) -> impl Iterator<Item = (RouteKey, &Attributes)> {
        let range = self.by_machine.range((vni, mac, FIRST_ADDRESS, FIRST_KEY)..);
        let own = range.take_while(move |row| (row.0, row.1) == (vni, mac));
        own.filter_map(|row| Some((row.3, &*self.routes.get(&(row.2, row.3))?.attributes)))
    }

    /// Returns the best place of a machine (RFC 7432, section 15): one that does not move, then the latest move, then the
    /// lowest address.
    pub(crate) fn best(&self, machine: (u32, MacAddr)) -> Option<Best> {
        let rank = |it: &&Attributes| (it.is_sticky, it.sequence, Reverse(it.next_hop));
        let best = self.of_machine(machine).map(|(_, attributes)| attributes).max_by_key(rank)?;
        let Attributes { next_hop: vtep, sequence, is_sticky, .. } = *best;
        Some(Best { vtep, sequence, is_sticky })
    }

    /// Marks the IP addresses of a machine as changed.
    pub(crate) fn touch_addresses(&mut self, machine: (u32, MacAddr)) {
        let addresses = self.of_machine(machine).filter_map(|(key, _)| match key {
            RouteKey::MacIp { address, .. } => address,
            RouteKey::InclusiveMulticast { .. } => None,
        });
        let addresses = addresses.map(|address| (machine.0, address));
        let addresses: Vec<_> = addresses.collect();
        self.changed.addresses.extend(addresses);
    }

    /// Returns the machine that has an IP address: of those whose place is the route's, as `is_at` says, the one that moved
    /// last.
    pub(crate) fn owner(
        &self,
        vni: u32,
        address: IpAddr,
        is_at: impl Fn(MacAddr, IpAddr) -> bool,
    ) -> Option<MacAddr> {
        let range = self.by_address.range((vni, address, FIRST_ADDRESS, FIRST_KEY)..);
        let own = range.take_while(|row| (row.0, row.1) == (vni, address));
        let routes = own.filter_map(|row| {
            let RouteKey::MacIp { mac, .. } = row.3 else { return None };
            let attributes = &self.routes.get(&(row.2, row.3))?.attributes;
            is_at(mac, attributes.next_hop).then_some((mac, attributes))
        });
        let rank = |(mac, it): &(MacAddr, &Arc<Attributes>)| {
            (it.is_sticky, it.sequence, Reverse(it.next_hop), Reverse(*mac))
        };
        routes.max_by_key(rank).map(|(mac, _)| mac)
    }

    /// Returns the hosts to which routes of a network lead: `true` for those that receive its broadcasts, which are at most
    /// [`MAX_FLOODED`].
    pub(crate) fn vteps(&self, vni: u32) -> BTreeMap<IpAddr, bool> {
        let range = self.vteps.range((vni, FIRST_ADDRESS)..);
        let own = range.take_while(|((of, _), _)| *of == vni);
        let mut flooded = 0;
        let vtep = |((_, vtep), routes): (&(u32, IpAddr), &VtepRoutes)| {
            flooded += usize::from(routes.floods > 0);
            (*vtep, routes.floods > 0 && flooded <= MAX_FLOODED)
        };
        own.map(vtep).collect()
    }
}

fn step(count: &mut usize, add: bool) {
    *count = if add { *count + 1 } else { *count - 1 };
}

fn set<T: Ord>(index: &mut BTreeSet<T>, row: T, add: bool) {
    match add {
        true => index.insert(row),
        false => index.remove(&row),
    };
}

/// Returns `true` for an address that a host can have.
pub(crate) fn is_unicast(address: IpAddr) -> bool {
    let is_broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !address.is_unspecified() && !address.is_multicast() && !address.is_loopback() && !is_broadcast
}
