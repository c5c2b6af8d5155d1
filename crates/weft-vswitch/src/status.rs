//! The status of a daemon, the answer to [`Request::Status`](crate::control::Request::Status).

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weft_ports::{Holdings, Port, PortCounters};
use weft_transport::Stats;
use weft_vpc::{DropCause, PairView, Place, PortId, SwitchCounters, Vni};
use weft_wire::MacAddr;

use crate::config::{Mac, Network, Route};
use crate::worker::Worker;
use crate::{Daemon, OpenError};

/// The state of a daemon at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The host's address in the network that carries the overlay.
    pub address: IpAddr,
    /// Largest IP packet of a tenant that one packet of that network carries, bytes.
    pub tenant_mtu: u16,
    /// Tenants' networks.
    pub networks: Vec<NetworkStatus>,
    /// The configured routes.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// Tenants' interfaces.
    pub ports: Vec<PortStatus>,
    /// Pairs of interfaces with a connection, the first [`PAIRS_SHOWN`](Self::PAIRS_SHOWN) of each thread.
    pub pairs: Vec<PairStatus>,
    /// The host's threads.
    pub threads: Vec<ThreadStatus>,
    /// The encryption of packets to other hosts.
    pub encryption: EncryptionStatus,
    /// The transport's counters by name.
    pub transport: BTreeMap<String, u64>,
    /// Numbers of dropped frames and packets that belong to no port, by cause, without zeros.
    pub dropped: BTreeMap<String, u64>,
}

impl Status {
    /// Largest number of pairs listed for each thread: a host may have a hundred thousand, which no person reads
    /// and which would delay frames while they are listed.
    pub const PAIRS_SHOWN: usize = 256;
}

/// Encryption between hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncryptionStatus {
    /// `off`, `preferred` or `required`.
    pub mode: String,
    /// The public key by which other hosts know this one, 64 hexadecimal digits.
    pub identity: String,
    /// `true` if the other hosts are authenticated, by a pre-shared key or by their public keys.
    pub authenticates: bool,
    /// Number of encrypted connections, and of connections that are set up without encryption.
    pub connections: (usize, usize),
    /// Numbers of packets sealed, opened and refused, by name.
    pub counters: BTreeMap<String, u64>,
}

/// A thread that carries frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStatus {
    /// Number of ports that belong to the thread.
    pub ports: usize,
    /// Number of pairs of interfaces that belong to the thread.
    pub pairs: usize,
    /// Number of data packets of the transport that it sent and received.
    pub packets: (u64, u64),
    /// Number of set-up packets, and of others, that arrived here and belong to other threads.
    pub redirected: (u64, u64),
    /// Number of tenants' frames that it handed over to other threads.
    pub handed_over: u64,
}

/// A tenant's network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkStatus {
    /// The network's configuration.
    #[serde(flatten)]
    pub network: Network,
    /// The places of its addresses: a port's name or a host's address.
    pub addresses: BTreeMap<Mac, String>,
}

/// A tenant's interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatus {
    /// The port's name.
    pub name: String,
    /// Its network.
    pub vni: u32,
    /// The port's Ethernet address.
    pub mac: Mac,
    /// The thread it belongs to.
    pub thread: u8,
    /// `true` if a tenant is connected.
    pub up: bool,
    /// Number of frames and bytes that the tenant sent.
    pub sent: (u64, u64),
    /// Number of frames and bytes that the tenant received.
    pub received: (u64, u64),
    /// Number of frames sent on connections, as plain VXLAN, and to this host.
    pub carried: (u64, u64, u64),
    /// Number of packets declined, which the peer retransmits, because the tenant had no room.
    pub declined: u64,
    /// Number of frames dropped, by cause, without zeros.
    pub dropped: BTreeMap<String, u64>,
    /// Number of frames held for the port: taken and not acknowledged, claimed and not completed.
    pub held: (usize, usize),
    /// Number of memory regions that its front end shares, and may share; zero for a TAP interface.
    #[serde(default)]
    pub memory_regions: (usize, usize),
}

/// A pair of interfaces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairStatus {
    /// Its network.
    pub vni: u32,
    /// The name of the port here.
    pub port: String,
    /// The Ethernet address of the other interface.
    pub remote: Mac,
    /// The other host.
    pub peer: IpAddr,
    /// `true` if its connection is set up.
    pub up: bool,
    /// `true` if its connection is encrypted.
    #[serde(default)]
    pub sealed: bool,
    /// Number of frames not acknowledged.
    pub waiting: usize,
    /// Number of packets sent, and number of those that were retransmissions.
    pub packets: (u64, u64),
    /// Its paths; empty if it has not sent lately.
    pub paths: Vec<PathStatus>,
}

/// A path of a pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathStatus {
    /// The path's number.
    pub path: u16,
    /// `true` if the path is in use.
    pub up: bool,
    /// The smoothed round-trip time, microseconds.
    pub rtt_us: Option<f64>,
    /// Number of packets lost on the path.
    pub lost: u64,
    /// Number of bytes in flight on the path.
    pub in_flight: u32,
}

/// The state of one thread.
#[derive(Debug)]
struct Snapshot {
    stats: Stats,
    dropped: BTreeMap<String, u64>,
    ports: Vec<(PortId, PortSnapshot)>,
    pairs: Vec<(PortId, PairStatus)>,
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
}

impl Worker {
    fn snapshot(&self, networks: &[Vni]) -> Snapshot {
        let (stats, handed) = (self.switch.transport(), self.switch.handed_over());
        let address = |&vni: &Vni| {
            self.switch.addresses(vni).map(move |entry| ((vni, entry.address), entry.value))
        };
        let port = |(id, port): (PortId, &dyn Port)| {
            let switched = self.switch.port_counters(id).cloned().unwrap_or_default();
            let (up, counted, held) = (port.is_up(), port.counters(), port.holdings());
            (id, PortSnapshot { up, counted, switched, held })
        };
        let pairs = self.switch.pairs().take(Status::PAIRS_SHOWN);
        Snapshot {
            stats: stats.clone(),
            dropped: self.dropped(),
            ports: self.ports.iter().map(port).collect(),
            pairs: pairs.map(|pair| (pair.port, self.pair_status(&pair))).collect(),
            addresses: networks.iter().flat_map(address).collect(),
            thread: ThreadStatus {
                ports: self.poller.ports().len(),
                pairs: self.switch.pair_count(),
                packets: (stats.data_sent, stats.data_received),
                redirected: (handed.setups, handed.packets),
                handed_over: handed.frames,
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
        let own = [
            ("malformed", self.counters.malformed),
            ("unsendable", self.counters.unsendable),
            ("not_handed_over", self.counters.not_handed_over),
        ];
        add_to(&mut dropped, own.map(|(name, count)| (name.to_owned(), count)));
        dropped
    }
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
        let threads = self.pool.run_on_all(move |worker| worker.snapshot(&vnis))?;
        let mut status = Status {
            address: self.config.host.address,
            tenant_mtu: self.config.host.tenant_mtu(),
            networks: vec![],
            routes: self.routes.values().cloned().collect(),
            ports: vec![],
            pairs: vec![],
            threads: threads.iter().map(|thread| thread.thread).collect(),
            encryption: EncryptionStatus::of(&threads),
            transport: BTreeMap::new(),
            dropped: BTreeMap::new(),
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
        let PortSnapshot { up, counted, switched, held } = port;
        let mut dropped = dropped(switched);
        dropped.extend(dropped_by_port(counted));
        Some(PortStatus {
            name: options.name.clone(),
            vni: options.vni,
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
        let flow = pair.flow;
        let paths = flow.and_then(|flow| flow.paths);
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
            packets: flow.map_or((0, 0), |flow| (flow.sent, flow.repeated)),
            paths: paths.map_or(vec![], |paths| paths.ids().map(|id| path(paths, id)).collect()),
        }
    }
}

const fn id_number(id: weft_transport::path::PathId) -> u16 {
    id.0
}

/// Returns the numbers of dropped frames by cause, without zeros.
pub(crate) fn dropped(counters: &SwitchCounters) -> BTreeMap<String, u64> {
    let row = |&cause: &DropCause| (cause.name().to_owned(), counters.dropped_for(cause));
    DropCause::ALL.iter().map(row).filter(|row| row.1 > 0).collect()
}

/// Returns the numbers of frames that the port itself dropped.
pub(crate) fn dropped_by_port(counters: &PortCounters) -> impl Iterator<Item = (String, u64)> {
    [
        ("bad_frame", counters.bad_frame),
        ("bad_header", counters.bad_header),
        ("lost_at_port", counters.lost),
    ]
    .into_iter()
    .filter(|row| row.1 > 0)
    .map(|(name, count)| (name.to_owned(), count))
}
