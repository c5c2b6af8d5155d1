//! What a daemon says of itself.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weft_ports::PortCounters;
use weft_vpc::{DropCause, PairView, SwitchCounters};

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
