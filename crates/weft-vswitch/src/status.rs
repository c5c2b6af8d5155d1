//! What a daemon says of itself.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weft_ports::{Port, PortCounters};
use weft_vpc::{DropCause, PairView, Place, PortId, SwitchCounters};

use crate::Daemon;
use crate::config::{Mac, Network};

/// A daemon at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The host's address in the network that carries the overlay.
    pub address: IpAddr,
    /// Bytes of an IP packet of a tenant that one packet there carries.
    pub tenant_mtu: u16,
    /// Tenants' networks.
    pub networks: Vec<NetworkStatus>,
    /// Tenants' interfaces.
    pub ports: Vec<PortStatus>,
    /// Pairs of interfaces that speak to each other.
    pub pairs: Vec<PairStatus>,
    /// What the transport did, by name.
    pub transport: BTreeMap<String, u64>,
    /// Frames and packets dropped that no port can be blamed for, by cause; zeros left out.
    pub dropped: BTreeMap<String, u64>,
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

impl Daemon {
    /// What it is at this moment.
    pub fn status(&self) -> Status {
        let stats = self.switch.transport();
        let transport = [
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
            ("paths_up", stats.paths_up),
        ];
        let mut dropped = dropped(self.switch.counters());
        let own = [
            ("malformed", self.counters.malformed),
            ("seal_refused", self.counters.seals.refused),
            ("in_the_clear", self.counters.seals.in_the_clear),
            ("unsendable", self.counters.unsendable),
        ];
        for (name, count) in own.into_iter().filter(|row| row.1 > 0) {
            *dropped.entry(name.to_owned()).or_default() += count;
        }
        Status {
            address: self.config.host.address,
            tenant_mtu: self.config.host.tenant_mtu(),
            networks: self
                .config
                .networks
                .iter()
                .map(|network| self.network_status(network))
                .collect(),
            ports: self.ports.iter().map(|(id, port)| self.port_status(id, port)).collect(),
            pairs: self
                .switch
                .pairs()
                .map(|pair| PairStatus::of(&pair, self.name(pair.port)))
                .collect(),
            transport: transport.map(|(name, count)| (name.to_owned(), count)).into(),
            dropped,
        }
    }

    fn name(&self, port: PortId) -> &str {
        self.names.get(&port).map_or("", |options| &options.name)
    }

    fn network_status(&self, network: &Network) -> NetworkStatus {
        let vni = network.vni().expect("checked when it was set");
        let place = |place| match place {
            Place::Port(port) => self.name(port).to_owned(),
            Place::Peer(peer) => IpAddr::to_string(&peer.ip()),
        };
        let addresses = self.switch.addresses(vni);
        NetworkStatus {
            network: network.clone(),
            addresses: addresses.map(|(mac, at, _)| (Mac(mac), place(at))).collect(),
        }
    }

    fn port_status(&self, id: PortId, port: &dyn Port) -> PortStatus {
        let options = &self.names[&id];
        let counted = port.counters();
        let switched = self.switch.port_counters(id).cloned().unwrap_or_default();
        let mut dropped = dropped(&switched);
        dropped.extend(dropped_by_port(&counted));
        let held = port.holdings();
        PortStatus {
            name: options.name.clone(),
            vni: options.vni,
            mac: options.mac,
            up: port.is_up(),
            sent: (counted.sent_frames, counted.sent_bytes),
            received: (counted.received_frames, counted.received_bytes),
            carried: (switched.reliable_sent, switched.plain_sent, switched.local_sent),
            declined: switched.declined,
            dropped,
            held: (held.taken, held.claimed),
        }
    }
}

impl PairStatus {
    pub(crate) fn of(pair: &PairView<'_>, port: &str) -> Self {
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
            port: port.to_owned(),
            remote: Mac(pair.remote),
            peer: pair.peer.ip(),
            up: pair.up,
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
