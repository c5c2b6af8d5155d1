//! The forwarding state of one router.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use serde::{Deserialize, Serialize};
use weft_topo::hash::HashAlgorithm;
use weft_units::BitRate;

use super::{Addresses, Prefix};

/// A router or switch: its ports and its forwarding table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Router {
    /// The router's name.
    pub name: String,
    /// The hash that selects a member of a group.
    pub hash: RouterHash,
    /// `true` if ports without carrier are left out of groups and routes: Linux's sysctl
    /// `ignore_routes_with_linkdown`, and the effect of a routing protocol soon after.
    #[serde(default = "yes")]
    pub ignore_linkdown: bool,
    /// The IPv6 settings, if they differ from those of IPv4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Ipv6>,
    /// Its ports.
    #[serde(rename = "port", default)]
    pub ports: Vec<Port>,
    /// Groups of next hops, which routes name.
    #[serde(rename = "group", default)]
    pub groups: Vec<Group>,
    /// The routes; among several for one prefix, only the one in use (with the lowest metric).
    #[serde(rename = "route", default)]
    pub routes: Vec<Route>,
}

const fn yes() -> bool {
    true
}

/// The hash function by which a router selects a member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RouterHash {
    /// Linux, by its sysctls below `net.ipv4`; for those below `net.ipv6` see [`Router::ipv6`].
    Linux {
        /// `fib_multipath_hash_policy`: 0 and 2 hash addresses, 1 also ports, 3 the given fields. With 1 the kernel
        /// reuses a hash that a local socket gave the packet, which cannot be predicted: use 3.
        policy: u8,
        /// `fib_multipath_hash_fields`, used with policy 3; 0x37 is the five-tuple.
        #[serde(default = "five_tuple")]
        fields: u32,
        /// `fib_multipath_hash_seed`, of both families. Zero means a secret that the kernel draws: the groups of such
        /// a router cannot be predicted.
        seed: u32,
    },
    /// A switch chip with one of Weft's functions (`weft list hashes`).
    Switch {
        /// The function.
        algorithm: HashAlgorithm,
        /// Its seed.
        seed: u32,
        /// Number of bits by which the hash is rotated to the right before the modulus.
        #[serde(default)]
        rotate: u32,
    },
}

/// Linux's sysctls below `net.ipv6`; the seed is the one below `net.ipv4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Ipv6 {
    /// `fib_multipath_hash_policy`: 0 hashes addresses and flow label, others as for IPv4.
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// The interface's name.
    pub name: String,
    /// The interface's index, by which samples and counters name it.
    pub ifindex: u32,
    /// The rate at which it can send.
    pub speed: BitRate,
    /// The link state of the port.
    #[serde(default)]
    pub state: PortState,
    /// The other end of its cable; none for a port without a cable, or if the other end names the cable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Cable>,
}

/// The link state of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PortState {
    /// The port passes packets.
    #[default]
    Up,
    /// There is no carrier: the cable or the other end failed.
    NoCarrier,
    /// The port was shut down.
    Down,
}

/// The other end of a port's cable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The name that routes use: the number of a nexthop object, or any name for a multipath route.
    pub name: String,
    /// The method of selection.
    pub kind: GroupKind,
    /// The next hops *in the order installed*, which is the kernel's and not the configuration's.
    pub members: Vec<Member>,
}

/// The method by which a hash selects a member of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum GroupKind {
    /// One next hop, without a selection.
    Single,
    /// A multipath route or a nexthop group: Linux uses thresholds in proportion to weights, a switch chip uses a
    /// modulus over entries.
    HashThreshold,
    /// A resilient nexthop group: a table of buckets, which moves few flows when members change.
    Resilient {
        /// By bucket, the index of its member.
        buckets: Vec<u16>,
    },
}

/// A next hop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The port by which it is reached.
    pub port: String,
    /// The neighbour's address; none on a port that leads to one neighbour only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub via: Option<IpAddr>,
    /// The member's weight in the group.
    #[serde(default = "one")]
    pub weight: u32,
    /// `true` if the neighbour does not answer. Linux skips such a member of a nexthop object and does not change
    /// the thresholds.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub unreachable: bool,
}

const fn one() -> u32 {
    1
}

/// A route for a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The destinations.
    pub to: Prefix,
    /// The action for packets to them.
    pub via: Target,
    /// `true` if a route controller has installed it; the controller may change and remove only such routes.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub steered: bool,
}

/// The action of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// Send packets to a next hop of this group.
    Group(String),
    /// Drop packets and send an ICMP error to the sender.
    Unreachable,
    /// Drop packets silently.
    Blackhole,
}

impl Router {
    /// Returns the hash for IPv6 packets.
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
    /// Returns the kind's name in files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::HashThreshold => "hash-threshold",
            Self::Resilient { .. } => "resilient",
        }
    }
}
