//! The network as a graph: hosts, switches and the cables between them.
//!
//! It owns the connections with their rates and delays. It knows no route ([`Routes`](crate::Routes)),
//! no failure ([`Failures`](crate::Failures)) and no queue (the simulator).

mod builder;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

pub use builder::{TopologyBuilder, TopologyError};
use weft_units::{BitRate, Duration};

/// The number of a host or a switch. Hosts are `0..hosts`, switches follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Returns the position in an array with one entry for each node.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The number of one direction of a cable, a directed link. The two directions of a cable have adjacent numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

impl LinkId {
    /// Returns the position in an array with one entry for each directed link.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the other direction of the same cable.
    pub const fn reverse(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// Returns the number of the link's cable.
    pub const fn cable(self) -> u32 {
        self.0 >> 1
    }
}

/// One direction of a cable: its two ends, rate and delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The node that sends on it.
    pub from: NodeId,
    /// The node that receives from it.
    pub to: NodeId,
    /// Transmission rate.
    pub rate: BitRate,
    /// Propagation delay: the time between the sending and the reception of the same bit.
    pub propagation: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Cable {
    ends: [NodeId; 2],
    rate: BitRate,
    propagation: Duration,
}

/// A network in which every host has a port and every switch reaches a host.
///
/// It takes 32 bytes of memory for each cable and about 8 for each node.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    hosts: u32,
    cables: Vec<Cable>,
    /// Offsets into `ports`: node `n`'s outgoing links are `ports[first_port[n]..first_port[n + 1]]`.
    first_port: Vec<u32>,
    ports: Vec<LinkId>,
    tiers: Vec<u8>,
    planes: Vec<u8>,
    error_rates: BTreeMap<u32, f64>,
    labels: Vec<u32>,
}

impl Topology {
    /// Returns the number of hosts, which are nodes `0..hosts`.
    pub const fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Returns the number of switches, which are nodes `hosts..hosts + switches`.
    pub fn switches(&self) -> u32 {
        self.nodes() - self.hosts
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> u32 {
        narrow(self.first_port.len() - 1)
    }

    /// Returns the number of directed links, two for each cable.
    pub fn links(&self) -> u32 {
        narrow(2 * self.cables.len())
    }

    /// Returns all hosts in order.
    pub fn host_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.hosts).map(NodeId)
    }

    /// Returns all switches in order.
    pub fn switch_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (self.hosts..self.nodes()).map(NodeId)
    }

    /// Returns all directed links in order.
    pub fn link_ids(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..self.links()).map(LinkId)
    }

    /// Returns `true` if `node` is a host.
    pub const fn is_host(&self, node: NodeId) -> bool {
        node.0 < self.hosts
    }

    /// Returns the ends, rate and delay of `link`.
    ///
    /// # Panics
    /// Panics if the topology has no such link.
    pub fn link(&self, link: LinkId) -> Link {
        let cable = &self.cables[link.cable() as usize];
        let direction = (link.0 & 1) as usize;
        Link {
            from: cable.ends[direction],
            to: cable.ends[1 - direction],
            rate: cable.rate,
            propagation: cable.propagation,
        }
    }

    /// Returns the links on which `node` sends, in port order: port `p` sends on `ports(node)[p]` and
    /// receives on its reverse.
    ///
    /// # Panics
    /// Panics if the topology has no such node.
    pub fn ports(&self, node: NodeId) -> &[LinkId] {
        let (first, end) = (self.first_port[node.index()], self.first_port[node.index() + 1]);
        &self.ports[first as usize..end as usize]
    }

    /// Returns the number of cables between `node` and the nearest host: 0 for a host, 1 for a leaf, 2
    /// for a spine or an aggregation switch, 3 for a core switch.
    ///
    /// # Panics
    /// Panics if the topology has no such node.
    pub fn tier(&self, node: NodeId) -> u8 {
        self.tiers[node.index()]
    }

    /// Returns the plane of a switch. Only hosts connect switches of different planes, so a packet
    /// stays in the plane of the port on which it left its host.
    ///
    /// # Panics
    /// Panics if `switch` is not a switch of this topology.
    pub fn plane(&self, switch: NodeId) -> u8 {
        self.planes[switch.index() - self.hosts as usize]
    }

    /// Returns the number of planes, at most 256; further planes share the last number.
    pub fn planes(&self) -> u32 {
        self.planes.iter().max().map_or(0, |&last| u32::from(last) + 1)
    }

    /// Returns the fraction of packets that `link` loses, in `0.0..=1.0`; zero unless a file sets it.
    pub fn error_rate(&self, link: LinkId) -> f64 {
        self.error_rates.get(&link.cable()).copied().unwrap_or(0.0)
    }

    /// Returns the number of `node` in the file from which the topology was read; without a file, its own number.
    ///
    /// # Panics
    /// Panics if the topology has no such node.
    pub fn label(&self, node: NodeId) -> u32 {
        self.labels.get(node.index()).copied().unwrap_or_else(|| {
            assert!(node.0 < self.nodes(), "no node {}", node.0);
            node.0
        })
    }

    /// Returns the display name of `node`: `host 3`, `leaf 130`, `spine 137`, `core 301`.
    ///
    /// # Panics
    /// Panics if the topology has no such node.
    pub fn name(&self, node: NodeId) -> NodeName {
        let role = match self.tier(node) {
            0 => "host",
            1 => "leaf",
            2 => "spine",
            _ => "core",
        };
        NodeName { role, label: self.label(node) }
    }
}

/// The display name of a node: its role and label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeName {
    role: &'static str,
    label: u32,
}

impl fmt::Display for NodeName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.role, self.label)
    }
}

/// Returns a count of nodes, links or routes as `u32`; the builder's limits keep it below 2^32.
pub(crate) fn narrow(count: usize) -> u32 {
    u32::try_from(count).expect("the builder's limits keep counts below 2^32")
}
