//! The state of a daemon's threads at one moment, from which the daemon makes its [`Status`].

use std::collections::BTreeMap;
use std::net::IpAddr;

use weft_ports::{Holdings, Port, PortCounters};
use weft_transport::Stats;
use weft_units::Instant;
use weft_vpc::{DropCause, PairView, Place, PortId, SwitchCounters, Vni};
use weft_wire::MacAddr;

use crate::config::{Mac, Network};
use crate::fleet::Fleet;
use crate::mirror::MirrorCounts;
use crate::observer::dropped_by_port;
use crate::status::{
    EncryptionStatus, NetworkStatus, PairStatus, PathStatus, PortStatus, Status, ThreadStatus,
};
use crate::worker::Worker;
use crate::{Daemon, OpenError};

/// The state of one thread.
#[derive(Debug)]
struct Snapshot {
    stats: Stats,
    dropped: BTreeMap<String, u64>,
    ports: Vec<(PortId, PortSnapshot)>,
    pairs: Vec<(PortId, PairStatus)>,
    peers: Vec<(IpAddr, bool)>,
    addresses: BTreeMap<(Vni, MacAddr), Place>,
    thread: ThreadStatus,
    encryption: EncryptionStatus,
}

#[derive(Debug)]
struct PortSnapshot {
    up: bool,
    counted: PortCounters,
    switched: SwitchCounters,
    held: Holdings,
    mirrored: Option<MirrorCounts>,
}

impl Worker {
    fn snapshot(&self, networks: &[Vni], now: Instant) -> Snapshot {
        let (stats, handed) = (self.switch.transport(), self.switch.handover_counters());
        let address = |&vni: &Vni| {
            self.switch.addresses(vni).map(move |entry| ((vni, entry.address), entry.value))
        };
        let port = |(id, port): (PortId, &dyn Port)| {
            let switched = self.switch.port_counters(id).cloned().unwrap_or_default();
            let (up, counted, held) = (port.is_up(), port.counters(), port.holdings());
            let mirrored = self.ports.mirrors.counts(id);
            (id, PortSnapshot { up, counted, switched, held, mirrored })
        };
        let pairs = shown(|| self.switch.pairs());
        Snapshot {
            stats: stats.clone(),
            dropped: self.dropped(),
            ports: self.ports.iter().map(port).collect(),
            pairs: pairs.map(|pair| (pair.port, self.pair_status(&pair))).collect(),
            peers: self.switch.peers_reached(now).collect(),
            addresses: networks.iter().flat_map(address).collect(),
            thread: ThreadStatus {
                ports: self.poller.ports().len(),
                pairs: self.switch.pair_count(),
                packets: (stats.data_sent, stats.data_received),
                redirected: (handed.setups, handed.packets),
                handed_over: handed.frames,
                wire: self.driver.sockets.wire().0,
            },
            encryption: self.encryption_status(),
        }
    }

    fn encryption_status(&self) -> EncryptionStatus {
        let (seals, config) = (&self.driver.seals, self.driver.seals.config());
        let counters = seals.counters();
        let in_clear = |pair: &PairView<'_>| pair.up && !seals.is_sealed(pair.connection);
        EncryptionStatus {
            mode: config.mode.name().to_owned(),
            identity: seals.identity().to_string(),
            authenticates: config.authenticates(),
            connections: (seals.connections(), self.switch.pairs().filter(in_clear).count()),
            counters: counters.rows().map(|(name, count)| (name.to_owned(), count)).collect(),
        }
    }

    fn pair_status(&self, pair: &PairView<'_>) -> PairStatus {
        PairStatus { sealed: self.driver.seals.is_sealed(pair.connection), ..PairStatus::of(pair) }
    }

    /// Returns the numbers of dropped packets that belong to no port.
    fn dropped(&self) -> BTreeMap<String, u64> {
        let mut dropped = dropped(self.switch.counters());
        let own = self.dropped_by_thread();
        add_to(&mut dropped, own.map(|(name, count)| (name.to_owned(), count)));
        dropped
    }

    /// Returns the numbers of packets that the thread itself dropped, by cause.
    pub(crate) const fn dropped_by_thread(&self) -> [(&'static str, u64); 3] {
        [
            ("malformed", self.counters.malformed),
            ("unsendable", self.counters.unsendable),
            ("not_handed_over", self.counters.not_handed_over),
        ]
    }
}

/// Returns the pairs to show, those with a fault first: at the limit, healthy ones are left out.
fn shown<'a, Pairs: Iterator<Item = PairView<'a>> + 'a>(
    all: impl Fn() -> Pairs,
) -> impl Iterator<Item = PairView<'a>> {
    let healthy = all().filter(|pair| !has_fault(pair));
    all().filter(has_fault).chain(healthy).take(Status::PAIRS_SHOWN)
}

/// Returns `true` if a pair's connection is not set up, or a path of it is down.
fn has_fault(pair: &PairView<'_>) -> bool {
    let paths = pair.stats.and_then(|stats| stats.paths);
    !pair.up || paths.is_some_and(|paths| paths.up_count() < paths.count())
}

/// Adds counts to sums by name, without zeros.
fn add_to(sums: &mut BTreeMap<String, u64>, counts: impl IntoIterator<Item = (String, u64)>) {
    for (name, count) in counts.into_iter().filter(|row| row.1 > 0) {
        *sums.entry(name).or_default() += count;
    }
}

impl Daemon {
    /// Returns the daemon's state at this moment.
    ///
    /// # Errors
    /// A thread has stopped.
    pub fn status(&self) -> Result<Status, OpenError> {
        let vnis: Vec<_> =
            self.config.networks.iter().filter_map(|known| known.vni().ok()).collect();
        let now = self.clock.now();
        let threads = self.pool.run_on_all(move |worker| worker.snapshot(&vnis, now))?;
        let mut status = Status {
            address: self.config.host.address,
            tenant_mtu: self.config.host.tenant_mtu(),
            networks: vec![],
            routes: self.routes.values().cloned().collect(),
            ports: vec![],
            pairs: vec![],
            peers: BTreeMap::new(),
            threads: threads.iter().map(|thread| thread.thread).collect(),
            encryption: EncryptionStatus::of(&threads),
            transport: BTreeMap::new(),
            dropped: BTreeMap::new(),
            reloads: self.reloads,
            fleet: self.fleet.as_ref().map(Fleet::status),
            flow_log: self.flow_log_status(),
            evpn: self.evpn.as_ref().map(|evpn| evpn.status(&self.config.host, self.clock.now())),
        };
        let mut addresses = BTreeMap::new();
        for thread in threads {
            for (name, count) in thread.stats.rows() {
                *status.transport.entry(name.to_owned()).or_default() += count;
            }
            add_to(&mut status.dropped, thread.dropped);
            status
                .ports
                .extend(thread.ports.iter().filter_map(|(id, at)| self.port_status(*id, at)));
            status.pairs.extend(
                thread
                    .pairs
                    .into_iter()
                    .map(|(id, pair)| PairStatus { port: self.name(id), ..pair }),
            );
            for (peer, is_reached) in thread.peers {
                *status.peers.entry(peer).or_insert(true) &= is_reached;
            }
            addresses.extend(thread.addresses);
        }
        let networks = self.config.networks.iter();
        status.networks = networks.map(|known| self.network_status(known, &addresses)).collect();
        let order =
            |port: &PortStatus| self.config.ports.iter().position(|known| known.name == port.name);
        status.ports.sort_by_cached_key(order);
        Ok(status)
    }

    fn name(&self, port: PortId) -> String {
        self.ports.get(&port).map_or_else(String::new, |(_, options)| options.name.clone())
    }

    fn network_status(
        &self,
        network: &Network,
        addresses: &BTreeMap<(Vni, MacAddr), Place>,
    ) -> NetworkStatus {
        let vni = network.vni().expect("checked when it was set");
        let place = |place: &Place| match place {
            Place::Port(port) => self.name(*port),
            Place::Peer(peer) => IpAddr::to_string(&peer.ip()),
        };
        let own = addresses.range((vni, MacAddr([0; 6]))..=(vni, MacAddr([0xff; 6])));
        NetworkStatus {
            network: network.clone(),
            addresses: own.map(|(&(_, mac), at)| (Mac(mac), place(at))).collect(),
        }
    }

    fn port_status(&self, id: PortId, port: &PortSnapshot) -> Option<PortStatus> {
        let (thread, options) = self.ports.get(&id)?;
        let PortSnapshot { up, counted, switched, held, mirrored } = port;
        let mut dropped = dropped(switched);
        add_to(
            &mut dropped,
            dropped_by_port(counted).map(|(name, count)| (name.to_owned(), count)),
        );
        Some(PortStatus {
            name: options.name.clone(),
            vni: options.vni,
            labels: options.labels.clone(),
            mac: options.mac,
            thread: *thread,
            up: *up,
            sent: (counted.sent_frames, counted.sent_bytes),
            received: (counted.received_frames, counted.received_bytes),
            carried: (switched.reliable_sent, switched.plain_sent, switched.local_sent),
            declined: switched.declined,
            dropped,
            held: (held.taken, held.claimed),
            memory_regions: held.regions,
            queue_pairs: held.queue_pairs,
            mirrored: *mirrored,
        })
    }
}

impl EncryptionStatus {
    /// Returns the sum over all threads, which have the same configuration.
    fn of(threads: &[Snapshot]) -> Self {
        let mut all = Self::default();
        for Self { mode, identity, authenticates, connections, counters } in
            threads.iter().map(|thread| thread.encryption.clone())
        {
            let (sealed, clear) = all.connections;
            (all.mode, all.identity, all.authenticates) = (mode, identity, authenticates);
            all.connections = (sealed + connections.0, clear + connections.1);
            for (name, count) in counters {
                *all.counters.entry(name).or_default() += count;
            }
        }
        all
    }
}

impl PairStatus {
    /// Returns the status without the port's name, which threads do not know.
    fn of(pair: &PairView<'_>) -> Self {
        let stats = pair.stats;
        let paths = stats.and_then(|stats| stats.paths);
        let path = |paths: &weft_transport::path::Paths, id| PathStatus {
            path: id_number(id),
            up: paths.is_up(id),
            rtt_us: paths.rtt(id).map(|rtt| rtt.as_nanos() as f64 / 1e3),
            lost: paths.lost(id),
            in_flight: paths.in_flight(id),
        };
        Self {
            vni: pair.vni.get(),
            port: String::new(),
            remote: Mac(pair.remote),
            peer: pair.peer.ip(),
            up: pair.up,
            sealed: false,
            waiting: pair.waiting,
            packets: stats
                .map_or((0, 0), |stats| (stats.packets_sent, stats.packets_retransmitted)),
            paths: paths.map_or(vec![], |paths| paths.ids().map(|id| path(paths, id)).collect()),
        }
    }
}

const fn id_number(id: weft_transport::path::PathId) -> u16 {
    id.0
}

/// Returns the numbers of dropped frames by cause, without zeros.
fn dropped(counters: &SwitchCounters) -> BTreeMap<String, u64> {
    let row = |&cause: &DropCause| (cause.name().to_owned(), counters.dropped_for(cause));
    DropCause::ALL.iter().map(row).filter(|row| row.1 > 0).collect()
}

#[cfg(test)]
mod tests {
    use weft_transport::ConnectionId;

    use super::*;

    #[test]
    fn of_more_pairs_than_are_shown_those_with_a_fault_are() {
        let pair = |number: u32| PairView {
            connection: ConnectionId(number),
            vni: Vni::new(100).unwrap(),
            port: PortId(1),
            remote: MacAddr([2, 0, 0, 0, 0, 1]),
            peer: ([10, 0, 0, 2], 4789).into(),
            up: number != 998,
            waiting: 0,
            stats: None,
        };
        let shown: Vec<u32> = shown(|| (0..1000).map(pair)).map(|it| it.connection.0).collect();
        assert_eq!(shown.len(), 256);
        assert_eq!((shown[0], shown[1], shown[255]), (998, 0, 254));
    }
}
