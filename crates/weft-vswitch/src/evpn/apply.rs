//! The entries of the switch's tables that follow from BGP routes, in a running daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use weft_evpn::RouteTarget;
use weft_vpc::{GATEWAY, PortId, Vni};
use weft_wire::MacAddr;

use super::EvpnSettings;
use super::handle::Evpn;
use super::report::Changes;
use crate::config::{Destination, Mac, Network, Row};
use crate::routes::{Beneath, MAX_ENTRIES_PER_ORDER};
use crate::worker::Worker;
use crate::{Daemon, OpenError};

/// A thread's view of the machines of its ports.
#[derive(Debug)]
struct Sighting {
    /// The ports whose guests may move and run here.
    present: Vec<PortId>,
    /// Machines that sent frames although their place is elsewhere.
    returned: BTreeSet<(Vni, MacAddr)>,
}

impl Worker {
    fn sighting(&mut self) -> Sighting {
        Sighting { present: self.present().collect(), returned: self.switch.take_returned() }
    }
}

impl Daemon {
    /// Starts, changes or ends the BGP sessions as `settings` say.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn set_evpn(&mut self, settings: Option<EvpnSettings>) -> Result<(), OpenError> {
        let is_same_speaker = |known: &Evpn, new: &EvpnSettings| {
            (known.settings.asn, known.settings.router_id) == (new.asn, new.router_id)
        };
        match (&mut self.evpn, &settings) {
            (Some(known), Some(new)) if known.settings == *new => {}
            (Some(known), Some(new)) if is_same_speaker(known, new) => known.set_settings(new),
            (_, new) => {
                if let Some(former) = &self.evpn {
                    // Its thread ends below; what it reported is removed first.
                    let removal = former.removal();
                    self.apply_entries(removal)?;
                }
                // The sessions end before those of the next speaker begin.
                self.evpn = None;
                let host = &self.config.host;
                self.evpn = new.as_ref().map(|new| Evpn::start(new, host)).transpose()?;
            }
        }
        self.config.evpn = settings;
        Ok(())
    }

    /// Notifies the speaker of what has changed here, and makes the changes that it reports.
    ///
    /// # Errors
    /// A thread has stopped.
    pub(crate) fn service_evpn(&mut self) -> Result<(), OpenError> {
        if self.evpn.is_none() {
            return Ok(());
        }
        let sightings = self.pool.run_on_all(Worker::sighting)?;
        let Some(evpn) = &mut self.evpn else { return Ok(()) };
        let present: BTreeSet<_> = sightings.iter().flat_map(|it| &it.present).copied().collect();
        evpn.is_stale |= present != evpn.present;
        evpn.present = present;
        if std::mem::take(&mut evpn.is_stale) {
            self.notify_speaker()?;
        }
        let Some(evpn) = &self.evpn else { return Ok(()) };
        for (vni, mac) in sightings.into_iter().flat_map(|it| it.returned) {
            evpn.on_frame(vni.get(), mac);
        }
        let changes = evpn.take_changes();
        self.apply_entries(changes)
    }

    /// Notifies the speaker of the networks that take part and of this host's machines in them.
    fn notify_speaker(&self) -> Result<(), OpenError> {
        let Some(evpn) = &self.evpn else { return Ok(()) };
        let mut networks = BTreeMap::<u32, BTreeSet<RouteTarget>>::new();
        for network in self.config.networks.iter().filter(|network| network.evpn) {
            networks.insert(network.vni, network.route_targets()?);
        }
        let mut machines = BTreeMap::<_, BTreeSet<IpAddr>>::new();
        for (id, (_, port)) in &self.ports {
            let is_here = !port.may_move() || evpn.present.contains(id);
            if is_here && networks.contains_key(&port.vni) {
                let addresses = port.prefixes()?.into_iter().map(|(address, _)| address);
                machines.insert((port.vni, port.mac.0), addresses.collect());
            }
        }
        evpn.set_networks(networks);
        evpn.set_machines(machines);
        Ok(())
    }

    /// Changes entries as the routes say.
    fn apply_entries(&mut self, changes: Changes) -> Result<(), OpenError> {
        let Changes { machines, addresses, vteps } = changes;
        // The switch knows of a router while it has a machine there; another host would be asked for a connection.
        for (&vni, vteps) in &vteps {
            let former = self.evpn.as_ref().and_then(|evpn| evpn.vteps.get(&vni));
            let mut both = former.cloned().unwrap_or_default();
            both.extend(vteps);
            self.set_vteps(vni, both)?;
        }
        self.apply_places(machines, addresses)?;
        vteps.into_iter().try_for_each(|(vni, vteps)| self.set_vteps(vni, vteps))
    }

    fn apply_places(
        &mut self,
        machines: BTreeMap<(u32, MacAddr), Option<IpAddr>>,
        addresses: BTreeMap<(u32, IpAddr), Option<MacAddr>>,
    ) -> Result<(), OpenError> {
        let mut orders = vec![];
        let ports = if machines.is_empty() { BTreeMap::new() } else { self.ports_of_machines() };
        for ((number, mac), at) in machines {
            let Some(vni) = Vni::new(number).filter(|_| mac != GATEWAY) else { continue };
            let port = ports.get(&(number, mac)).copied();
            orders.extend(self.change_machine((vni, mac), at, port));
        }
        let owned = self.owned_addresses(addresses.keys().map(|key| key.0))?;
        for ((number, address), mac) in addresses {
            let Some(vni) = Vni::new(number) else { continue };
            orders.extend(self.change_address((vni, address), mac, &owned));
        }
        for orders in orders.chunks(MAX_ENTRIES_PER_ORDER) {
            let orders = orders.to_vec();
            self.pool.run_on_all(move |worker| orders.iter().for_each(|it| it.apply(worker)))?;
        }
        Ok(())
    }

    /// Returns the ports of machines that do not come and go.
    fn ports_of_machines(&self) -> BTreeMap<(u32, MacAddr), PortId> {
        let stay = self.ports.iter().filter(|(_, (_, port))| !port.may_move());
        stay.map(|(&id, (_, port))| ((port.vni, port.mac.0), id)).collect()
    }

    /// Remembers the place of a machine, which has perhaps a port here. Returns what that changes in tables, unless a row of
    /// the file places the machine.
    fn change_machine(
        &mut self,
        key: (Vni, MacAddr),
        at: Option<IpAddr>,
        port: Option<PortId>,
    ) -> Option<Beneath> {
        let place = at.map(|at| self.config.host.peer(at));
        let evpn = self.evpn.as_mut()?;
        let former = match place {
            Some(place) => evpn.machines.insert(key, place),
            None => evpn.machines.remove(&key),
        };
        if self.routes.contains_key(&(key.0.get(), Destination::Machine(Mac(key.1)))) {
            return None;
        }
        match (place, former) {
            (Some(place), _) => Some(Beneath::Place(key, place)),
            (None, Some(former)) => Some(Beneath::NoPlace(key, former, port)),
            (None, None) => None,
        }
    }

    /// Remembers the machine of an address. Returns what that changes in tables, unless the address is one of `owned`.
    fn change_address(
        &mut self,
        key: (Vni, IpAddr),
        mac: Option<MacAddr>,
        owned: &BTreeSet<(u32, IpAddr)>,
    ) -> Option<Beneath> {
        let evpn = self.evpn.as_mut()?;
        let former = match mac {
            Some(mac) => evpn.addresses.insert(key, mac),
            None => evpn.addresses.remove(&key),
        };
        if owned.contains(&(key.0.get(), key.1)) {
            return None;
        }
        match (mac, former) {
            (Some(mac), _) => Some(Beneath::Address(key, mac)),
            (None, Some(former)) => Some(Beneath::NoAddress(key, former)),
            (None, None) => None,
        }
    }

    /// Returns the addresses of some networks that the configuration gives to machines or gateways.
    fn owned_addresses(
        &self,
        networks: impl Iterator<Item = u32>,
    ) -> Result<BTreeSet<(u32, IpAddr)>, OpenError> {
        let networks: BTreeSet<u32> = networks.collect();
        let mut owned = BTreeSet::new();
        if networks.is_empty() {
            return Ok(owned);
        }
        for (_, port) in self.ports.values().filter(|(_, port)| networks.contains(&port.vni)) {
            owned.extend(port.prefixes()?.iter().map(|&(address, _)| (port.vni, address)));
        }
        for network in self.config.networks.iter().filter(|it| networks.contains(&it.vni)) {
            owned.extend(network.gateways()?.iter().map(|&(address, _)| (network.vni, address)));
        }
        for ((vni, _), route) in self.routes.iter().filter(|((vni, _), _)| networks.contains(vni)) {
            if let Row::Machine { addresses, .. } = &route.row {
                owned.extend(addresses.iter().map(|&address| (*vni, address)));
            }
        }
        Ok(owned)
    }

    fn set_vteps(&mut self, vni: u32, vteps: BTreeMap<IpAddr, bool>) -> Result<(), OpenError> {
        if let Some(evpn) = &mut self.evpn {
            evpn.vteps.insert(vni, vteps);
        }
        self.apply_vteps(vni)
    }

    /// Sets on all threads which hosts of a network speak plain VXLAN alone: those of its routes that are not its `peers`.
    pub(crate) fn apply_vteps(&self, number: u32) -> Result<(), OpenError> {
        let (Some(vni), Some(evpn)) = (Vni::new(number), &self.evpn) else { return Ok(()) };
        let network = self.config.networks.iter().find(|known| known.vni == number);
        let peers = network.map(|network: &Network| &network.peers);
        let is_peer = |vtep: &IpAddr| peers.is_some_and(|peers| peers.contains(vtep));
        let vteps = evpn.vteps.get(&number).into_iter().flatten();
        let vteps = vteps.filter(|(vtep, _)| !is_peer(vtep));
        let vteps: BTreeMap<SocketAddr, bool> =
            vteps.map(|(&vtep, &floods)| (self.config.host.peer(vtep), floods)).collect();
        self.pool.run_on_all(move |worker| worker.switch.set_vteps(vni, vteps.clone()))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use weft_vpc::Place;

    use super::*;
    use crate::config::{Config, Route};
    use crate::evpn::EvpnNeighbour;

    /// Returns the file of a host on a loopback address of this process, without a neighbour that answers.
    fn file(folder: &str) -> String {
        let [_, _, high, low] = std::process::id().to_be_bytes();
        format!(
            "[host]\naddress = '127.61.{high}.{low}'\npaths = 1\ncontrol = '{folder}/control.sock'\n\
             [[network]]\nvni = 7\ngateways = ['10.0.0.254/24']\nevpn = true\n\
             [[port]]\nname = 'a'\nvni = 7\nmac = '02:00:00:00:00:01'\naddresses = ['10.0.0.1/24']\n\
             vhost-user = {{ socket = '{folder}/a.sock' }}\n\
             [[route]]\nvni = 7\nmac = '02:00:00:00:00:05'\npeer = '127.0.0.5'\naddresses = ['10.0.0.5']\n\
             [evpn]\nas = 65001\n[[evpn.neighbour]]\naddress = '127.0.0.1'\nas = 65000\nport = 1\n"
        )
    }

    fn mac(last: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, last])
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// Returns the last octets of the hosts of machines 1, 2 and 5, with zero for this one, and of the machines that have
    /// the addresses 1, 2, 5 and 254.
    fn entries(daemon: &Daemon) -> ([Option<u8>; 3], [Option<u8>; 4]) {
        let read = |worker: &mut Worker| {
            let table = worker.switch.table(Vni::new(7).unwrap());
            let place = |last| match table.place_if_set(mac(last))? {
                Place::Port(_) => Some(0),
                Place::Peer(peer) => match peer.ip() {
                    IpAddr::V4(peer) => Some(peer.octets()[3]),
                    IpAddr::V6(_) => None,
                },
            };
            let owner = |last| Some(table.neighbour_if_set(address(last))?.0[5]);
            ([1, 2, 5].map(place), [1, 2, 5, 254].map(owner))
        };
        daemon.pool.run_on(0, read).unwrap()
    }

    #[test]
    fn a_route_of_the_file_counts_before_routes_by_bgp_and_these_before_a_port() {
        let folder = std::env::temp_dir().join(format!("weft-evpn-of-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let text = file(folder.to_str().unwrap());
        let config: Config = toml::from_str(&text).unwrap();
        let mut daemon = Daemon::open(config.clone()).unwrap();
        let own = ([Some(0), None, Some(5)], [Some(1), None, Some(5), Some(GATEWAY.0[5])]);
        assert_eq!(entries(&daemon), own);
        let at = |last: u8| Some(IpAddr::from([127, 9, 0, last]));
        let all = || Changes {
            machines: [1, 2, 5].map(|last| ((7, mac(last)), at(40 + last))).into(),
            addresses: [1, 2, 5, 254].map(|last| ((7, address(last)), Some(mac(9)))).into(),
            vteps: [(7, [(at(42).unwrap(), true)].into())].into(),
        };
        daemon.apply_entries(all()).unwrap();
        daemon
            .apply_entries(Changes { machines: [((7, GATEWAY), at(9))].into(), ..all() })
            .unwrap();
        let changed = ([Some(41), Some(42), Some(5)], [Some(1), Some(9), Some(5), own.1[3]]);
        assert_eq!(entries(&daemon), changed);
        let status = daemon.status().unwrap().evpn.unwrap();
        assert_eq!((status.machines, status.vteps[&7].len()), (3, 1));
        // Without the row of the file the routes count, and with it again the row.
        let route: Route = config.routes[0].clone();
        daemon.remove_route(7, route.destination()).unwrap();
        let without = ([Some(41), Some(42), Some(45)], [Some(1), Some(9), Some(9), own.1[3]]);
        assert_eq!(entries(&daemon), without);
        daemon.set_route(route).unwrap();
        assert_eq!(entries(&daemon), changed);
        // The machine is at its port again; the one that another host has is nowhere.
        let machines = [1, 2].map(|last| ((7, mac(last)), None)).into();
        daemon.apply_entries(Changes { machines, ..Changes::default() }).unwrap();
        assert_eq!(entries(&daemon).0, own.0);
        // A port of a machine that counts as elsewhere goes.
        daemon.apply_entries(all()).unwrap();
        daemon.remove_port("a").unwrap();
        let without_port = ([Some(41), Some(42), Some(5)], [Some(9), Some(9), Some(5), own.1[3]]);
        assert_eq!(entries(&daemon), without_port);
        // Another neighbour in the file disturbs no entry.
        let mut config = config;
        let neighbours = &mut config.evpn.as_mut().unwrap().neighbours;
        let other = EvpnNeighbour { address: [127, 0, 0, 2].into(), ..neighbours[0].clone() };
        neighbours.push(other);
        daemon.reload(&config, false).unwrap();
        let deadline = daemon.clock.now() + weft_units::Duration::from_secs(30);
        while daemon.status().unwrap().evpn.unwrap().neighbours.len() < 2 {
            assert!(daemon.clock.now() < deadline, "the speaker does not take the neighbour");
            weft_testkit::pause();
        }
        let with_port = ([Some(0), Some(42), Some(5)], [Some(1), Some(9), Some(5), own.1[3]]);
        assert_eq!(entries(&daemon), with_port);
        // Without [evpn] nothing of it stays.
        (config.evpn, config.networks[0].evpn) = (None, false);
        daemon.reload(&config, false).unwrap();
        assert_eq!(entries(&daemon), own);
        assert!(daemon.status().unwrap().evpn.is_none());
        drop(daemon);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
