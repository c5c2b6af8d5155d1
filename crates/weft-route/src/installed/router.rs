//! One router as it forwards.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use serde::{Deserialize, Serialize};
use weft_topo::hash::HashAlgorithm;
use weft_units::BitRate;

use super::{Addresses, Prefix};

/// A router or switch: its ports, and where it sends what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Router {
    /// What it is called.
    pub name: String,
    /// How it chooses within a group.
    pub hash: RouterHash,
    /// Whether a port without carrier is left out of groups and routes: Linux's sysctl
    /// `ignore_routes_with_linkdown`, and what a routing protocol does soon after.
    #[serde(default = "yes")]
    pub ignore_linkdown: bool,
    /// How it treats IPv6, where that is not as it treats IPv4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Ipv6>,
    /// Its ports.
    #[serde(rename = "port", default)]
    pub ports: Vec<Port>,
    /// Groups of next hops, which routes name.
    #[serde(rename = "group", default)]
    pub groups: Vec<Group>,
    /// Routes: of several for one prefix only the one that is used (the lowest metric).
    #[serde(rename = "route", default)]
    pub routes: Vec<Route>,
}

const fn yes() -> bool {
    true
}

/// How a router turns a packet to the number that chooses within a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RouterHash {
    /// Linux, by its sysctls below `net.ipv4`; for those below `net.ipv6` see [`Router::ipv6`].
    Linux {
        /// `fib_multipath_hash_policy`: 0 and 2 addresses, 1 and ports, 3 the fields. With 1 the kernel
        /// reuses a hash that a local socket gave the packet, which cannot be predicted: use 3.
        policy: u8,
        /// `fib_multipath_hash_fields`, which counts with policy 3; 0x37 is the five-tuple.
        #[serde(default = "five_tuple")]
        fields: u32,
        /// `fib_multipath_hash_seed`, of both families. Zero is a secret that the kernel draws: such a
        /// router's groups cannot be predicted.
        seed: u32,
    },
    /// A switch chip with one of Weft's functions (`weft list hashes`).
    Switch {
        /// The function.
        algorithm: HashAlgorithm,
        /// Its seed.
        seed: u32,
        /// By how many bits the hash is turned to the right before the modulus.
        #[serde(default)]
        rotate: u32,
    },
}

/// Linux's sysctls below `net.ipv6`; the seed is the one below `net.ipv4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ipv6 {
    /// `fib_multipath_hash_policy`: 0 addresses and flow label, else as for IPv4.
    pub policy: u8,
    /// `fib_multipath_hash_fields`; 8 is the flow label.
    #[serde(default = "five_tuple")]
    pub fields: u32,
    /// `ignore_routes_with_linkdown`.
    #[serde(default = "yes")]
    pub ignore_linkdown: bool,
}

const fn five_tuple() -> u32 {
    0x37
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// The interface's name.
    pub name: String,
    /// The interface's number, by which samples and counters name it.
    pub ifindex: u32,
    /// What it can send in a second.
    pub speed: BitRate,
    /// Whether it passes packets.
    #[serde(default)]
    pub state: PortState,
    /// Where its cable ends; none for a port without one, or whose cable the other end names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Cable>,
}

/// Whether a port passes packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortState {
    /// It does.
    #[default]
    Up,
    /// The cable or the other end is gone.
    NoCarrier,
    /// It was shut.
    Down,
}

/// What a port is cabled to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Cable {
    /// Another router's port.
    Peer {
        /// The router's name.
        router: String,
        /// The port's name.
        port: String,
    },
    /// A host, by its address or addresses. A host with two ports is named by two cables.
    Host(Addresses),
}

/// Next hops among which a packet's hash chooses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// What routes call it: the number of a nexthop object, or any name for a multipath route.
    pub name: String,
    /// How a number chooses.
    pub kind: GroupKind,
    /// The next hops *in the order installed*: the kernel's, which is not the configuration's.
    pub members: Vec<Member>,
}

/// How a hash chooses within a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupKind {
    /// One next hop, no choice.
    Single,
    /// A multipath route or a nexthop group: in Linux by thresholds in proportion to weights, in
    /// a switch chip by a modulus over entries.
    HashThreshold,
    /// A resilient nexthop group: a table of buckets, which moves few flows when members change.
    Resilient {
        /// By bucket, the place of its member.
        buckets: Vec<u16>,
    },
}

/// A next hop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The port it leads over.
    pub port: String,
    /// The neighbour's address; none on a port that leads to one neighbour only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// Its share of the group.
    #[serde(default = "one")]
    pub weight: u32,
    /// That the neighbour does not answer. Linux passes over such a member of a nexthop object
    /// and leaves all thresholds where they are.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub unreachable: bool,
}

const fn one() -> u32 {
    1
}

/// Where packets for a prefix go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The destinations.
    pub to: Prefix,
    /// What becomes of them.
    pub via: Target,
    /// That a route controller has installed it: what it may change and remove.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub steered: bool,
}

/// What a route does with packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// Sends them to a next hop of this group.
    Group(String),
    /// Drops them and says so to the sender.
    Unreachable,
    /// Drops them.
    Blackhole,
}

impl Router {
    /// How it hashes IPv6.
    pub const fn hash6(&self) -> RouterHash {
        match (self.hash, self.ipv6) {
            (RouterHash::Linux { seed, .. }, Some(Ipv6 { policy, fields, .. })) => {
                RouterHash::Linux { policy, fields, seed }
            }
            (hash, _) => hash,
        }
    }
}

impl GroupKind {
    /// What it is called in files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::HashThreshold => "hash-threshold",
            Self::Resilient { .. } => "resilient",
        }
    }
}
