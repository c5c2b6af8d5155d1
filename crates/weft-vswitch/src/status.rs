//! The status of a daemon, the answer to [`Request::Status`](crate::control::Request::Status), and the result of a
//! reload.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weft_udp::sockets::Wire;

use crate::config::{Mac, Network, Route};
use crate::evpn::EvpnStatus;
use crate::fleet::FleetStatus;
use crate::flow_log::FlowLogStatus;
use crate::mirror::MirrorCounts;

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
    /// Pairs of interfaces with a connection, [`PAIRS_SHOWN`](Self::PAIRS_SHOWN) of each thread: first those whose
    /// connection is not set up or has a path that is down.
    pub pairs: Vec<PairStatus>,
    /// Other hosts to which connections were requested: `true` if the last request of each thread was accepted, `false` if
    /// one failed within the last minute.
    #[serde(default)]
    pub peers: BTreeMap<IpAddr, bool>,
    /// The host's threads.
    pub threads: Vec<ThreadStatus>,
    /// The encryption of packets to other hosts.
    pub encryption: EncryptionStatus,
    /// The transport's counters by name.
    pub transport: BTreeMap<String, u64>,
    /// Numbers of dropped frames and packets that belong to no port, by cause, without zeros.
    pub dropped: BTreeMap<String, u64>,
    /// Number of reloads that were applied, and of those that were refused.
    #[serde(default)]
    pub reloads: (u64, u64),
    /// The host in its fleet, if its file names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetStatus>,
    /// The export of flow logs, if its file names a collector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_log: Option<FlowLogStatus>,
    /// The sessions with BGP neighbours, if its file names some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evpn: Option<EvpnStatus>,
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
    /// The way of most of its packets.
    #[serde(default)]
    pub wire: Wire,
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
    /// Names and values that describe its tenant.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
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
    /// Number of pairs of queues that the tenant uses, and may use.
    #[serde(default)]
    pub queue_pairs: (usize, usize),
    /// Numbers of frames copied for an analyser, if the port has a mirror.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirrored: Option<MirrorCounts>,
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

/// The numbers of items that a reload changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Reloaded {
    /// Networks added or changed.
    pub networks_set: usize,
    /// Networks removed.
    pub networks_removed: usize,
    /// Ports added, those with another interface among them.
    pub ports_added: usize,
    /// Ports removed, those with another interface among them.
    pub ports_removed: usize,
    /// Ports that stay and whose policies changed.
    pub ports_changed: usize,
    /// Routes added or changed.
    pub routes_set: usize,
    /// Routes removed.
    pub routes_removed: usize,
    /// Items of the file that changes by command override.
    pub overridden: usize,
}
