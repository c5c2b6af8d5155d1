//! The state of a host's BGP sessions.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use crate::config::Mac;

/// The state of a host that shares networks by EVPN.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvpnStatus {
    /// The AS number of this host.
    #[serde(rename = "as")]
    pub asn: u32,
    /// Its BGP identifier.
    pub router_id: Ipv4Addr,
    /// The sessions with neighbours.
    pub neighbours: Vec<EvpnNeighbourStatus>,
    /// Number of machines whose places come from neighbours.
    pub machines: usize,
    /// The hosts to which routes lead, by network: `true` for those that receive its broadcasts.
    pub vteps: BTreeMap<u32, BTreeMap<IpAddr, bool>>,
    /// Machines of ports of this host, by network, that another host announces again and again too. They stay there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub duplicates: Vec<(u32, Mac)>,
}

/// The session with a neighbour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvpnNeighbourStatus {
    /// Its address.
    pub address: IpAddr,
    /// Its AS number.
    #[serde(rename = "as")]
    pub asn: u32,
    /// `established`, or the state on the way to it (RFC 4271): `idle`, `connect`, `open-sent`, `open-confirm`.
    pub state: String,
    /// Seconds since the session was established or ended.
    pub seconds: f64,
    /// Number of routes that it has announced, and number that it has of this host.
    pub routes: (usize, usize),
    /// Number of UPDATE messages received and sent.
    pub updates: (u64, u64),
    /// Number of UPDATE messages whose routes counted as withdrawn for a fault.
    pub faulty: u64,
    /// Number of sessions that were established, and of those that ended.
    pub sessions: (u64, u64),
    /// The reason that the last session or attempt ended, or the last fault of a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
