//! The network as a graph: hosts, switches and the cables between them.
//!
//! It says what is connected and how fast. It holds no route, no queue and no failure: those are
//! [`Routes`](crate::Routes), the simulator's, and [`Failures`](crate::Failures).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

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

/// Why nodes and cables are not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// More nodes than this crate is sized for.
    #[error("{got} nodes are more than the {} a topology may have", TopologyBuilder::MAX_NODES)]
    TooManyNodes {
        /// How many were asked for.
        got: u64,
    },
    /// More cables than this crate is sized for.
    #[error("{got} cables are more than the {} a topology may have", TopologyBuilder::MAX_CABLES)]
    TooManyCables {
        /// How many were asked for.
        got: u64,
    },
    /// A network without hosts carries nothing.
    #[error("a topology needs at least one host")]
    NoHosts,
    /// A cable names a node that does not exist.
    #[error("a cable ends at node {node}, but there are only {nodes} nodes")]
    UnknownNode {
        /// The number it named.
        node: u32,
        /// How many nodes there are.
        nodes: u32,
    },
    /// A cable joins a node with itself.
    #[error("a cable joins node {node} with itself")]
    SelfLoop {
        /// That node.
        node: u32,
    },
    /// A cable joins two hosts, which no route could use.
    #[error("a cable joins hosts {a} and {b}; hosts connect to switches only")]
    HostToHost {
        /// One host.
        a: u32,
        /// The other host.
        b: u32,
    },
    /// A host that no cable reaches.
    #[error("host {host} has no cable")]
    LonelyHost {
        /// That host.
        host: u32,
    },
    /// A switch from which no host can be reached.
    #[error("switch {switch} reaches no host")]
    LonelySwitch {
        /// That switch.
        switch: u32,
    },
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

/// Puts a [`Topology`] together. Nodes and ports are numbered in the order they are added.
#[derive(Clone, Debug)]
pub struct TopologyBuilder {
    hosts: u32,
    nodes: u32,
    cables: Vec<Cable>,
    error_rates: BTreeMap<u32, f64>,
    labels: Vec<u32>,
}

impl TopologyBuilder {
    /// Nodes a topology may have: eight times the largest network anybody plans with Weft.
    pub const MAX_NODES: u32 = 1 << 20;
    /// Cables a topology may have; 128 MiB of them.
    pub const MAX_CABLES: u32 = 1 << 22;

    /// A network of so many hosts and nothing else yet.
    ///
    /// # Errors
    /// `NoHosts` for zero, `TooManyNodes` above [`Self::MAX_NODES`].
    pub fn new(hosts: u32) -> Result<Self, TopologyError> {
        let (cables, error_rates, labels) = (Vec::new(), BTreeMap::new(), Vec::new());
        let builder = Self { hosts, nodes: hosts, cables, error_rates, labels };
        if hosts == 0 {
            return Err(TopologyError::NoHosts);
        }
        builder.within_limits()
    }

    fn within_limits(self) -> Result<Self, TopologyError> {
        if self.nodes > Self::MAX_NODES {
            return Err(TopologyError::TooManyNodes { got: self.nodes.into() });
        }
        Ok(self)
    }

    /// Adds so many switches and gives their numbers.
    ///
    /// # Errors
    /// `TooManyNodes` above [`Self::MAX_NODES`].
    pub fn add_switches(
        &mut self,
        count: u32,
    ) -> Result<impl Iterator<Item = NodeId> + Clone + use<>, TopologyError> {
        let end = u64::from(self.nodes) + u64::from(count);
        if end > u64::from(Self::MAX_NODES) {
            return Err(TopologyError::TooManyNodes { got: end });
        }
        let first = self.nodes;
        self.nodes += count;
        Ok((first..self.nodes).map(NodeId))
    }

    /// Joins `a` and `b` by a cable and gives the direction from `a` to `b`. Two nodes may be
    /// joined by several cables.
    ///
    /// # Errors
    /// `UnknownNode`, `SelfLoop`, `HostToHost`, or `TooManyCables`.
    pub fn connect(
        &mut self,
        a: NodeId,
        b: NodeId,
        rate: BitRate,
        propagation: Duration,
    ) -> Result<LinkId, TopologyError> {
        if let Some(node) = [a, b].into_iter().find(|node| node.0 >= self.nodes) {
            return Err(TopologyError::UnknownNode { node: node.0, nodes: self.nodes });
        }
        if a == b {
            return Err(TopologyError::SelfLoop { node: a.0 });
        }
        if a.0 < self.hosts && b.0 < self.hosts {
            return Err(TopologyError::HostToHost { a: a.0, b: b.0 });
        }
        let cable = narrow(self.cables.len());
        if cable == Self::MAX_CABLES {
            return Err(TopologyError::TooManyCables { got: u64::from(cable) + 1 });
        }
        self.cables.push(Cable { ends: [a, b], rate, propagation });
        Ok(LinkId(2 * cable))
    }

    /// Sets the share of packets that both directions of `link` lose.
    pub(crate) fn set_error_rate(&mut self, link: LinkId, rate: f64) {
        if rate > 0.0 {
            self.error_rates.insert(link.cable(), rate);
        }
    }

    /// Sets the numbers the nodes have outside, one a node.
    pub(crate) fn set_labels(&mut self, labels: Vec<u32>) {
        self.labels = labels;
    }

    /// The finished network.
    ///
    /// # Errors
    /// `LonelyHost` or `LonelySwitch` where something is not connected.
    pub fn build(self) -> Result<Topology, TopologyError> {
        let (first_port, ports) = number_ports(self.nodes, &self.cables);
        let mut topology = Topology {
            hosts: self.hosts,
            cables: self.cables,
            first_port,
            ports,
            tiers: Vec::new(),
            planes: Vec::new(),
            error_rates: self.error_rates,
            labels: self.labels,
        };
        if let Some(host) = topology.host_ids().find(|&host| topology.ports(host).is_empty()) {
            return Err(TopologyError::LonelyHost { host: host.0 });
        }
        topology.tiers = distances_to_hosts(&topology)?;
        topology.planes = components(&topology);
        Ok(topology)
    }
}

/// Each node's outgoing links in the order their cables were laid, as first index and list.
fn number_ports(nodes: u32, cables: &[Cable]) -> (Vec<u32>, Vec<LinkId>) {
    let mut first = vec![0u32; nodes as usize + 1];
    for end in cables.iter().flat_map(|cable| cable.ends) {
        first[end.index() + 1] += 1;
    }
    for node in 0..nodes as usize {
        first[node + 1] += first[node];
    }
    let mut next = first.clone();
    let mut ports = vec![LinkId(0); 2 * cables.len()];
    for (cable, link) in cables.iter().zip((0..).step_by(2)) {
        for (direction, end) in (0..).zip(cable.ends) {
            ports[next[end.index()] as usize] = LinkId(link + direction);
            next[end.index()] += 1;
        }
    }
    (first, ports)
}

/// Breadth-first search from all hosts at once.
fn distances_to_hosts(topology: &Topology) -> Result<Vec<u8>, TopologyError> {
    let mut tiers: Vec<Option<u8>> = vec![None; topology.nodes() as usize];
    let mut queue: VecDeque<NodeId> = topology.host_ids().collect();
    tiers[..topology.hosts as usize].fill(Some(0));
    while let Some(node) = queue.pop_front() {
        let farther = tiers[node.index()].map(|tier| tier.saturating_add(1));
        for &port in topology.ports(node) {
            let next = topology.link(port).to;
            if tiers[next.index()].is_none() {
                tiers[next.index()] = farther;
                queue.push_back(next);
            }
        }
    }
    let lonely = tiers.iter().position(Option::is_none);
    match lonely {
        Some(switch) => Err(TopologyError::LonelySwitch { switch: narrow(switch) }),
        None => Ok(tiers.into_iter().flatten().collect()),
    }
}

/// The connected component of every switch when hosts are taken away, numbered by lowest switch.
fn components(topology: &Topology) -> Vec<u8> {
    let hosts = topology.hosts as usize;
    let mut planes: Vec<Option<u8>> = vec![None; topology.switches() as usize];
    let mut next_plane = 0u8;
    let mut stack = Vec::new();
    for start in topology.switch_ids() {
        if planes[start.index() - hosts].is_some() {
            continue;
        }
        planes[start.index() - hosts] = Some(next_plane);
        stack.push(start);
        while let Some(switch) = stack.pop() {
            for &port in topology.ports(switch) {
                let next = topology.link(port).to;
                if !topology.is_host(next) && planes[next.index() - hosts].is_none() {
                    planes[next.index() - hosts] = Some(next_plane);
                    stack.push(next);
                }
            }
        }
        next_plane = next_plane.saturating_add(1);
    }
    planes.into_iter().flatten().collect()
}

/// Counts of nodes, links and routes, which the builder's limits keep far below 2^32.
pub(crate) fn narrow(count: usize) -> u32 {
    u32::try_from(count).expect("the builder's limits keep counts below 2^32")
}
