//! The network as a graph: hosts, switches and the cables between them.
//!
//! It says what is connected and how fast. It holds no route, no queue and no failure: those are
//! [`Routes`](crate::Routes), the simulator's, and [`Failures`](crate::Failures).

mod builder;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

pub use builder::{TopologyBuilder, TopologyError};
use weft_units::{BitRate, Duration};

/// A host or a switch. Hosts are `0..hosts`, switches follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The position in an array with one entry a node.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One direction of a cable. The two directions of a cable have neighbouring numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

impl LinkId {
    /// The position in an array with one entry a directed link.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The other direction of the same cable.
    pub const fn reverse(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// The cable this is a direction of.
    pub const fn cable(self) -> u32 {
        self.0 >> 1
    }
}

/// One direction of a cable: from whom, to whom, how fast, how far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Who sends on it.
    pub from: NodeId,
    /// Who receives from it.
    pub to: NodeId,
    /// How fast bits are put on it.
    pub rate: BitRate,
    /// Time from the last bit sent to the last bit received.
    pub propagation: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Cable {
    ends: [NodeId; 2],
    rate: BitRate,
    propagation: Duration,
}

/// A network that hangs together: every host has a port and every switch reaches a host.
///
/// It costs 32 bytes a cable and about 8 a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    hosts: u32,
    cables: Vec<Cable>,
    /// `ports[first_port[n]..first_port[n + 1]]` are node `n`'s outgoing links.
    first_port: Vec<u32>,
    ports: Vec<LinkId>,
    tiers: Vec<u8>,
    planes: Vec<u8>,
    error_rates: BTreeMap<u32, f64>,
    labels: Vec<u32>,
}

impl Topology {
    /// How many hosts there are: nodes `0..hosts`.
    pub const fn hosts(&self) -> u32 {
        self.hosts
    }

    /// How many switches there are: nodes `hosts..hosts + switches`.
    pub fn switches(&self) -> u32 {
        self.nodes() - self.hosts
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> u32 {
        narrow(self.first_port.len() - 1)
    }

    /// How many directed links there are: two a cable.
    pub fn links(&self) -> u32 {
        narrow(2 * self.cables.len())
    }

    /// Every host.
    pub fn host_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.hosts).map(NodeId)
    }

    /// Every switch.
    pub fn switch_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (self.hosts..self.nodes()).map(NodeId)
    }

    /// Every directed link.
    pub fn link_ids(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..self.links()).map(LinkId)
    }

    /// Whether `node` is a host.
    pub const fn is_host(&self, node: NodeId) -> bool {
        node.0 < self.hosts
    }

    /// What `link` is.
    ///
    /// # Panics
    /// If the topology has no such link.
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

    /// The links `node` sends on, in port order: port `p` sends on `ports(node)[p]` and receives
    /// on its reverse.
    ///
    /// # Panics
    /// If the topology has no such node.
    pub fn ports(&self, node: NodeId) -> &[LinkId] {
        let (first, end) = (self.first_port[node.index()], self.first_port[node.index() + 1]);
        &self.ports[first as usize..end as usize]
    }

    /// Cables between `node` and the nearest host: 0 for a host, 1 for a leaf, 2 for a spine or an
    /// aggregation switch, 3 for a core switch.
    ///
    /// # Panics
    /// If the topology has no such node.
    pub fn tier(&self, node: NodeId) -> u8 {
        self.tiers[node.index()]
    }

    /// The plane a switch belongs to. Switches of different planes are connected by hosts only, so
    /// a packet stays in the plane of the port it left its host by.
    ///
    /// # Panics
    /// If `switch` is not a switch of this topology.
    pub fn plane(&self, switch: NodeId) -> u8 {
        self.planes[switch.index() - self.hosts as usize]
    }

    /// How many planes there are, at most 256 (further ones share the last number).
    pub fn planes(&self) -> u32 {
        self.planes.iter().max().map_or(0, |&last| u32::from(last) + 1)
    }

    /// The share of packets that `link` loses, in `0.0..=1.0`; zero unless a file said otherwise.
    pub fn error_rate(&self, link: LinkId) -> f64 {
        self.error_rates.get(&link.cable()).copied().unwrap_or(0.0)
    }

    /// The number `node` has outside: in the file it came from, or its own.
    ///
    /// # Panics
    /// If the topology has no such node.
    pub fn label(&self, node: NodeId) -> u32 {
        self.labels.get(node.index()).copied().unwrap_or_else(|| {
            assert!(node.0 < self.nodes(), "no node {}", node.0);
            node.0
        })
    }

    /// What people call `node`: `host 3`, `leaf 130`, `spine 137`, `core 301`.
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

/// A node's role and number, for people.
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

/// Counts of nodes, links and routes, which the builder's limits keep far below 2^32.
pub(crate) fn narrow(count: usize) -> u32 {
    u32::try_from(count).expect("the builder's limits keep counts below 2^32")
}
