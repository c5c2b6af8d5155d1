//! What a daemon says of itself.

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

/// A daemon at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The host's address in the network that carries the overlay.
    pub address: IpAddr,
    /// Bytes of an IP packet of a tenant that one packet there carries.
    pub tenant_mtu: u16,
    /// Tenants' networks.
    pub networks: Vec<NetworkStatus>,
    /// What it was told of where machines and prefixes are.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// Tenants' interfaces.
    pub ports: Vec<PortStatus>,
    /// Pairs of interfaces that speak to each other, the first [`PAIRS_SHOWN`](Self::PAIRS_SHOWN) of each thread.
    pub pairs: Vec<PairStatus>,
    /// The host's threads.
    pub threads: Vec<ThreadStatus>,
    /// How packets to other hosts are encrypted.
    pub encryption: EncryptionStatus,
    /// What the transport did, by name.
    pub transport: BTreeMap<String, u64>,
    /// Frames and packets dropped that no port can be blamed for, by cause; zeros left out.
    pub dropped: BTreeMap<String, u64>,
}

impl Status {
    /// Pairs that are shown of each thread: a host may have a hundred thousand, which nobody reads and which
    /// would keep frames waiting while they are written down.
    pub const PAIRS_SHOWN: usize = 256;
}

/// Encryption between hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncryptionStatus {
    /// `off`, `preferred` or `required`.
    pub mode: String,
    /// The public key that other hosts know this one by, 64 hexadecimal digits.
    pub identity: String,
    /// `true` if it is checked who the other hosts are: by a pre-shared key, or by their public keys.
    pub authenticates: bool,
    /// Connections that are encrypted, and connections that are set up and are not.
    pub connections: (usize, usize),
    /// What was sealed and opened, and what was refused, by name.
    pub counters: BTreeMap<String, u64>,
}

/// A thread that carries frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStatus {
    /// Ports that belong to it.
    pub ports: usize,
    /// Pairs of interfaces that do.
    pub pairs: usize,
    /// Packets of the transport with payload that it sent and received.
    pub packets: (u64, u64),
    /// Packets that set connections up, and others, that arrived here and belong to other threads.
    pub redirected: (u64, u64),
    /// Tenants' frames that it left to others.
    pub handed_over: u64,
}

/// A tenant's network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkStatus {
    /// How it was set up.
    #[serde(flatten)]
    pub network: Network,
    /// Where its addresses are: a port's name or a host's address.
    pub addresses: BTreeMap<Mac, String>,
}

/// A tenant's interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatus {
    /// What it is called.
    pub name: String,
    /// Its network.
    pub vni: u32,
    /// Its address.
    pub mac: Mac,
    /// The thread it belongs to.
    pub thread: u8,
    /// Whether a tenant is there.
    pub up: bool,
    /// Frames and bytes that the tenant sent.
    pub sent: (u64, u64),
    /// Frames and bytes that the tenant received.
    pub received: (u64, u64),
    /// Frames sent on connections, as plain VXLAN, and to this host.
    pub carried: (u64, u64, u64),
    /// Packets that came again because the tenant had no room.
    pub declined: u64,
    /// Frames dropped, by cause; zeros left out.
    pub dropped: BTreeMap<String, u64>,
    /// Frames held for it: taken and not acknowledged, claimed and not shown.
    pub held: (usize, usize),
    /// Regions of memory that its front end shares, and may share; none for a TAP interface.
    #[serde(default)]
    pub memory_regions: (usize, usize),
}

/// A pair of interfaces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairStatus {
    /// Its network.
    pub vni: u32,
    /// The port here.
    pub port: String,
    /// The interface there.
    pub remote: Mac,
    /// The host it is on.
    pub peer: IpAddr,
    /// Whether its connection is set up.
    pub up: bool,
    /// `true` if its connection is encrypted.
    #[serde(default)]
    pub sealed: bool,
    /// Frames not acknowledged.
    pub waiting: usize,
    /// Packets sent, and those of them that were sent again.
    pub packets: (u64, u64),
    /// Its paths, where it has sent lately.
    pub paths: Vec<PathStatus>,
}

/// A path of a pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathStatus {
    /// Its number.
    pub path: u16,
    /// Whether it carries anything.
    pub up: bool,
    /// Its smoothed round trip, microseconds.
    pub rtt_us: Option<f64>,
    /// Packets lost on it.
    pub lost: u64,
    /// Bytes in flight on it.
    pub in_flight: u32,
}

/// What one thread says of itself.
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
            self.switch.addresses(vni).map(move |(address, place, _)| ((vni, address), place))
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
                ports: self.crowd.ports().len(),
                pairs: self.switch.pair_count(),
                packets: (stats.data_sent, stats.data_received),
                redirected: (handed.setups, handed.packets),
                handed_over: handed.frames,
            },
            encryption: self.encryption_status(),
        }
    }

    fn encryption_status(&self) -> EncryptionStatus {
        let (seals, config) = (&self.seals, self.seals.config());
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
        PairStatus { sealed: self.seals.is_sealed(pair.connection), ..PairStatus::of(pair) }
    }

    /// What no port can be blamed for.
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

/// Adds counts up by name, without those that are zero.
fn add_to(sums: &mut BTreeMap<String, u64>, counts: impl IntoIterator<Item = (String, u64)>) {
    for (name, count) in counts.into_iter().filter(|row| row.1 > 0) {
        *sums.entry(name).or_default() += count;
    }
}

fn transport(stats: &Stats) -> [(&'static str, u64); 14] {
    [
        ("data_sent", stats.data_sent),
        ("data_received", stats.data_received),
        ("acks_sent", stats.acks_sent),
        ("acks_received", stats.acks_received),
        ("fast_retransmits", stats.fast_retransmits),
        ("timeout_retransmits", stats.timeout_retransmits),
        ("tail_loss_probes", stats.tail_loss_probes),
        ("spurious_retransmits", stats.spurious_retransmits),
        ("out_of_order", stats.out_of_order),
        ("declined", stats.declined),
        ("shed", stats.shed),
        ("paths_down", stats.paths_down),
        ("paths_lossy", stats.paths_lossy),
        ("paths_up", stats.paths_up),
    ]
}

impl Daemon {
    /// What it is at this moment.
    ///
    /// # Errors
    /// One of its threads has stopped.
    pub fn status(&self) -> Result<Status, OpenError> {
        let vnis: Vec<_> =
            self.config.networks.iter().filter_map(|known| known.vni().ok()).collect();
        let threads = self.crew.ask_all(move |worker| worker.snapshot(&vnis))?;
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
            for (name, count) in transport(&thread.stats) {
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
    /// That of all threads, which are configured alike.
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
    /// Without its port's name, which threads do not know.
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

/// Causes and how often, without those that never were.
pub(crate) fn dropped(counters: &SwitchCounters) -> BTreeMap<String, u64> {
    let row = |&cause: &DropCause| (cause.name().to_owned(), counters.dropped_for(cause));
    DropCause::ALL.iter().map(row).filter(|row| row.1 > 0).collect()
}

/// What the port itself had to drop.
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
