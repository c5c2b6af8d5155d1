//! The configured rows of networks' tables: places of machines, and next hops of gateways.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use weft_vpc::{GATEWAY, Hop, Place, PortId, Prefix, Table, Vni};
use weft_wire::MacAddr;

use crate::config::{Destination, Host, Network, Route, Routes, Row};
use crate::worker::Worker;
use crate::{Daemon, OpenError};

/// Number of entries that a thread changes before it carries frames again.
pub(crate) const MAX_ENTRIES_PER_ORDER: usize = 1_000;

/// The entries of the switch's tables that some rows produce.
#[derive(Default)]
struct Entries {
    machines: BTreeMap<(Vni, MacAddr), Place>,
    neighbours: BTreeMap<(Vni, IpAddr), MacAddr>,
    prefixes: BTreeMap<(Vni, Prefix), Hop>,
}

/// A new value for an entry; `None` removes the entry.
#[derive(Clone, Copy)]
enum Change {
    Machine((Vni, MacAddr), Option<Place>),
    Neighbour((Vni, IpAddr), Option<MacAddr>),
    Prefix((Vni, Prefix), Option<Hop>),
}

/// A new value for an entry that comes from a control plane's routes. It never replaces an entry of a row.
#[derive(Clone, Copy)]
pub(crate) enum Beneath {
    /// The machine is at another host.
    Place((Vni, MacAddr), SocketAddr),
    /// The machine is no longer at this host, and at this port if there is one; another place stays.
    NoPlace((Vni, MacAddr), SocketAddr, Option<PortId>),
    /// The address belongs to this machine.
    Address((Vni, IpAddr), MacAddr),
    /// The address no longer belongs to this machine; another owner stays.
    NoAddress((Vni, IpAddr), MacAddr),
}

impl Daemon {
    /// Sets the place of a machine or the next hop of a prefix, and replaces an earlier row.
    ///
    /// # Errors
    /// The network's number has more than 24 bits.
    pub fn set_route(&mut self, route: Route) -> Result<(), OpenError> {
        let key = (route.vni, route.destination());
        // The whole row is set again: a port may have taken the machine's place since.
        self.change_entries(self.routes.get(&key).into_iter(), std::iter::empty())?;
        self.change_entries(std::iter::empty(), std::iter::once(&route))?;
        self.routes.insert(key, route);
        Ok(())
    }

    /// Removes the row of a machine or a prefix.
    ///
    /// # Errors
    /// There is no such row.
    pub fn remove_route(&mut self, number: u32, destination: Destination) -> Result<(), OpenError> {
        let key = (number, destination);
        let Some(route) = self.routes.get(&key) else {
            let why = format!("network {number} has no route to {destination}");
            return Err(OpenError::Unknown(why));
        };
        self.change_entries(std::iter::once(route), std::iter::empty())?;
        self.routes.remove(&key);
        Ok(())
    }

    /// Replaces all rows. Entries that stay the same are not touched. Returns the number of rows that were added or
    /// changed, and of those that were removed.
    ///
    /// # Errors
    /// A network's number has more than 24 bits.
    pub(crate) fn set_routes(&mut self, routes: &[Route]) -> Result<(usize, usize), OpenError> {
        let row = |route: &Route| ((route.vni, route.destination()), route.clone());
        let routes: Routes = routes.iter().map(row).collect();
        let set = routes.iter().filter(|(key, route)| self.routes.get(key) != Some(route)).count();
        let removed = self.routes.keys().filter(|key| !routes.contains_key(key)).count();
        if set + removed > 0 {
            self.change_entries(self.routes.values(), routes.values())?;
            self.routes = routes;
        }
        Ok((set, removed))
    }

    /// Sets the entries of a row again, if there is such a row: it counts before a port of its machine here.
    pub(crate) fn restore_row(&self, key: (u32, Destination)) -> Result<(), OpenError> {
        self.change_entries(std::iter::empty(), self.routes.get(&key).into_iter())
    }

    /// Applies the differences between two lists of rows on all threads.
    fn change_entries<'a>(
        &self,
        old: impl Iterator<Item = &'a Route>,
        new: impl Iterator<Item = &'a Route>,
    ) -> Result<(), OpenError> {
        let host = &self.config.host;
        let mut changes = changes(Entries::of(host, old)?, &Entries::of(host, new)?);
        let ports = self.entries_of_ports()?;
        for change in &mut changes {
            match change {
                // The entries of this host's ports, and of routes by EVPN, are there without a row.
                Change::Machine(key, place @ None) => {
                    let elsewhere = self.evpn.as_ref().and_then(|evpn| evpn.place(key));
                    let port = || ports.machines.get(key).copied();
                    *place = elsewhere.map(Place::Peer).or_else(port);
                }
                Change::Neighbour(key, mac @ None) => {
                    let elsewhere = || self.evpn.as_ref().and_then(|evpn| evpn.neighbour(key));
                    *mac = ports.neighbours.get(key).copied().or_else(elsewhere);
                }
                // A gateway in the same subnet reaches the prefix without a route.
                Change::Prefix((vni, prefix), hop @ None) => {
                    *hop = self.subnets(vni.get())?.contains(prefix).then_some(Hop::Direct);
                }
                _ => {}
            }
        }
        for changes in changes.chunks(MAX_ENTRIES_PER_ORDER) {
            let changes = changes.to_vec();
            self.pool.run_on_all(move |worker| {
                changes.iter().for_each(|change| change.apply(worker));
            })?;
        }
        Ok(())
    }

    /// Returns the entries of this host's ports.
    fn entries_of_ports(&self) -> Result<Entries, OpenError> {
        let mut entries = Entries::default();
        for (&id, (_, port)) in &self.ports {
            let (vni, mac) = (port.vni()?, port.mac.0);
            // A guest that may move has this place while it runs here.
            if !port.may_move() {
                entries.machines.insert((vni, mac), Place::Port(id));
            }
            let neighbours = port.prefixes()?.into_iter().map(|(address, _)| ((vni, address), mac));
            entries.neighbours.extend(neighbours);
        }
        Ok(entries)
    }

    /// Returns the rows of a network for one of some prefixes.
    pub(crate) fn routes_to(&self, vni: u32, prefixes: &[Prefix]) -> Vec<(Prefix, Hop)> {
        let hop = |&prefix: &Prefix| match self.routes.get(&(vni, prefix.into()))?.row {
            Row::Prefix { to, via } => Some((to, Hop::Via(via))),
            Row::Machine { .. } => None,
        };
        prefixes.iter().filter_map(hop).collect()
    }

    fn subnets(&self, vni: u32) -> Result<Vec<Prefix>, OpenError> {
        let network = self.config.networks.iter().find(|known| known.vni == vni);
        let gateways = network.map_or(Ok(vec![]), Network::gateways)?;
        Ok(gateways.iter().map(subnet).collect())
    }
}

impl Entries {
    fn of<'a>(host: &Host, routes: impl Iterator<Item = &'a Route>) -> Result<Self, OpenError> {
        let mut entries = Self::default();
        for route in routes {
            let vni = vni(route.vni)?;
            match &route.row {
                Row::Machine { mac, peer, addresses } => {
                    entries.machines.insert((vni, mac.0), Place::Peer(host.peer(*peer)));
                    let neighbours = addresses.iter().map(|&address| ((vni, address), mac.0));
                    entries.neighbours.extend(neighbours);
                }
                Row::Prefix { to, via } => {
                    entries.prefixes.insert((vni, *to), Hop::Via(*via));
                }
            }
        }
        Ok(entries)
    }
}

/// Returns the changes that turn `old` into `new`.
fn changes(old: Entries, new: &Entries) -> Vec<Change> {
    let machines = differences(&old.machines, &new.machines);
    let neighbours = differences(&old.neighbours, &new.neighbours);
    let prefixes = differences(&old.prefixes, &new.prefixes);
    let changes = machines.map(|(key, value)| Change::Machine(key, value));
    let changes = changes.chain(neighbours.map(|(key, value)| Change::Neighbour(key, value)));
    changes.chain(prefixes.map(|(key, value)| Change::Prefix(key, value))).collect()
}

/// Returns the keys whose values differ, with their new values.
fn differences<'a, K: Copy + Ord, V: Copy + Eq>(
    old: &'a BTreeMap<K, V>,
    new: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = (K, Option<V>)> + 'a {
    let set = new.iter().filter(|(key, value)| old.get(key) != Some(value));
    let removed = old.keys().filter(|key| !new.contains_key(key));
    set.map(|(&key, &value)| (key, Some(value))).chain(removed.map(|&key| (key, None)))
}

impl Change {
    fn apply(&self, worker: &mut Worker) {
        let switch = &mut worker.switch;
        match *self {
            Self::Machine((vni, mac), place) => worker.set_place(vni, mac, place),
            Self::Neighbour((vni, address), mac) => switch.table(vni).set_neighbour(address, mac),
            Self::Prefix((vni, prefix), hop) => switch.table(vni).set_route(prefix, hop),
        }
    }
}

impl Beneath {
    pub(crate) fn apply(&self, worker: &mut Worker) {
        match *self {
            Self::Place((vni, mac), at) => worker.set_place(vni, mac, Some(Place::Peer(at))),
            Self::NoPlace((vni, mac), former, port) => {
                if worker.switch.table(vni).place_if_set(mac) == Some(Place::Peer(former)) {
                    worker.set_place(vni, mac, port.map(Place::Port));
                }
            }
            Self::Address((vni, address), mac) => {
                worker.switch.table(vni).set_neighbour(address, Some(mac));
            }
            Self::NoAddress((vni, address), former) => {
                let table = worker.switch.table(vni);
                if table.neighbour_if_set(address) == Some(former) {
                    table.set_neighbour(address, None);
                }
            }
        }
    }
}

fn vni(number: u32) -> Result<Vni, OpenError> {
    Vni::new(number).ok_or_else(|| OpenError::Unknown(format!("{number} is no VNI")))
}

pub(crate) fn subnet(&(address, length): &(IpAddr, u8)) -> Prefix {
    Prefix::new(address, length).expect("checked with the configuration")
}

/// Adds a network's gateways to its table, or removes them.
pub(crate) fn set_gateways(table: &mut Table<Place>, gateways: &[(IpAddr, u8)], answer: bool) {
    for gateway in gateways {
        table.set_neighbour(gateway.0, answer.then_some(GATEWAY));
        table.set_route(subnet(gateway), answer.then_some(Hop::Direct));
    }
}
