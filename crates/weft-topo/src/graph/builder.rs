//! The builder of a [`Topology`], which also checks that the network is connected.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use weft_units::{BitRate, Duration};

use super::{Cable, LinkId, NodeId, Topology, narrow};

/// A builder of a [`Topology`]. Nodes and ports are numbered in the order in which they are added.
#[derive(Clone, Debug)]
pub struct TopologyBuilder {
    hosts: u32,
    nodes: u32,
    cables: Vec<Cable>,
    error_rates: BTreeMap<u32, f64>,
    labels: Vec<u32>,
}

impl TopologyBuilder {
    /// Maximum number of nodes: a million hosts and their switches.
    pub const MAX_NODES: u32 = 1 << 21;
    /// Maximum number of cables, which take 128 MiB.
    pub const MAX_CABLES: u32 = 1 << 22;
    /// Maximum rate of a cable, 100 Tb/s: the sum of a node's rates cannot overflow, and the time to
    /// send a byte does not round to zero.
    pub const MAX_RATE: BitRate = BitRate::gbps(100_000).expect("above zero");
    /// Maximum propagation delay of a cable: the sum of a route's delays cannot overflow.
    pub const MAX_PROPAGATION: Duration = Duration::from_secs(1);

    /// Returns a builder with `hosts` hosts, no switch and no cable.
    ///
    /// # Errors
    /// Returns `NoHosts` for zero, `TooManyNodes` above [`Self::MAX_NODES`].
    pub fn new(hosts: u32) -> Result<Self, TopologyError> {
        if hosts == 0 {
            return Err(TopologyError::NoHosts);
        }
        if hosts > Self::MAX_NODES {
            return Err(TopologyError::TooManyNodes { got: hosts.into() });
        }
        let (cables, error_rates, labels) = (Vec::new(), BTreeMap::new(), Vec::new());
        Ok(Self { hosts, nodes: hosts, cables, error_rates, labels })
    }

    /// Adds `count` switches and returns their numbers.
    ///
    /// # Errors
    /// Returns `TooManyNodes` above [`Self::MAX_NODES`].
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

    /// Connects `a` and `b` by a cable and returns the direction from `a` to `b`. Several cables may
    /// connect the same two nodes.
    ///
    /// # Errors
    /// Returns `UnknownNode`, `SelfLoop` or `HostToHost` for invalid ends, `TooFast` above [`Self::MAX_RATE`],
    /// `TooLong` above [`Self::MAX_PROPAGATION`], `TooManyCables` above [`Self::MAX_CABLES`].
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
        if rate > Self::MAX_RATE {
            return Err(TopologyError::TooFast { got: rate });
        }
        if propagation > Self::MAX_PROPAGATION {
            return Err(TopologyError::TooLong { got: propagation });
        }
        let cable = narrow(self.cables.len());
        if cable == Self::MAX_CABLES {
            return Err(TopologyError::TooManyCables { got: u64::from(cable) + 1 });
        }
        self.cables.push(Cable { ends: [a, b], rate, propagation });
        Ok(LinkId(2 * cable))
    }

    /// Sets the fraction of packets that each direction of `link`'s cable loses.
    pub(crate) fn set_error_rate(&mut self, link: LinkId, rate: f64) {
        if rate > 0.0 {
            self.error_rates.insert(link.cable(), rate);
        }
    }

    /// Sets the nodes' numbers in the topology file, one for each node.
    pub(crate) fn set_labels(&mut self, labels: Vec<u32>) {
        self.labels = labels;
    }

    /// Returns the finished network.
    ///
    /// # Errors
    /// Returns `UnconnectedHost` if a host has no cable, `UnconnectedSwitch` if a switch reaches no host.
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
            return Err(TopologyError::UnconnectedHost { host: host.0 });
        }
        topology.tiers = distances_to_hosts(&topology)?;
        topology.planes = components(&topology);
        Ok(topology)
    }
}

/// Returns each node's outgoing links in the order in which their cables were added: an offset into the list for each
/// node, and the list.
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

/// Returns each node's distance to the nearest host, by breadth-first search from all hosts at once.
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
    let unconnected = tiers.iter().position(Option::is_none);
    match unconnected {
        Some(switch) => Err(TopologyError::UnconnectedSwitch { switch: narrow(switch) }),
        None => Ok(tiers.into_iter().flatten().collect()),
    }
}

/// Returns each switch's connected component in the graph without hosts, numbered by lowest switch.
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

/// An error of [`TopologyBuilder`]: the nodes and cables do not form a valid network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// The topology has more than [`TopologyBuilder::MAX_NODES`] nodes.
    #[error("{got} nodes are more than the {} a topology may have", TopologyBuilder::MAX_NODES)]
    TooManyNodes {
        /// Number requested.
        got: u64,
    },
    /// The topology has more than [`TopologyBuilder::MAX_CABLES`] cables.
    #[error("{got} cables are more than the {} a topology may have", TopologyBuilder::MAX_CABLES)]
    TooManyCables {
        /// Number requested.
        got: u64,
    },
    /// The topology has no host.
    #[error("a topology needs at least one host")]
    NoHosts,
    /// A cable names a node that does not exist.
    #[error("a cable ends at node {node}, but there are only {nodes} nodes")]
    UnknownNode {
        /// The node's number.
        node: u32,
        /// Number of nodes.
        nodes: u32,
    },
    /// A cable joins a node with itself.
    #[error("a cable joins node {node} with itself")]
    SelfLoop {
        /// That node.
        node: u32,
    },
    /// A cable joins two hosts; no route could use it.
    #[error("a cable joins hosts {a} and {b}; hosts connect to switches only")]
    HostToHost {
        /// One host.
        a: u32,
        /// The other host.
        b: u32,
    },
    /// A cable's rate exceeds [`TopologyBuilder::MAX_RATE`].
    #[error("a cable carries {got}, more than the {} it may", TopologyBuilder::MAX_RATE)]
    TooFast {
        /// Its rate.
        got: BitRate,
    },
    /// A cable's delay exceeds [`TopologyBuilder::MAX_PROPAGATION`].
    #[error("a cable takes {got}, more than the {} it may", TopologyBuilder::MAX_PROPAGATION)]
    TooLong {
        /// Its propagation delay.
        got: Duration,
    },
    /// A host has no cable.
    #[error("host {host} has no cable")]
    UnconnectedHost {
        /// That host.
        host: u32,
    },
    /// A switch reaches no host.
    #[error("switch {switch} reaches no host")]
    UnconnectedSwitch {
        /// That switch.
        switch: u32,
    },
}
