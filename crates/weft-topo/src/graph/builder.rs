//! Putting a [`Topology`] together, and checking that it hangs together.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use weft_units::{BitRate, Duration};

use super::{Cable, LinkId, NodeId, Topology, narrow};

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
    /// Highest rate of a cable, 100 Tb/s: so that the rates of a node's cables add up, and a byte
    /// takes a time that can be told from none.
    pub const MAX_RATE: BitRate = BitRate::gbps(100_000).expect("above zero");
    /// Longest propagation of a cable: so that the delays of a route add up.
    pub const MAX_PROPAGATION: Duration = Duration::from_secs(1);

    /// A network of so many hosts and nothing else yet.
    ///
    /// # Errors
    /// `NoHosts` for zero, `TooManyNodes` above [`Self::MAX_NODES`].
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
    /// `UnknownNode`, `SelfLoop`, `HostToHost`, `TooFast`, `TooLong`, or `TooManyCables`.
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
    /// A cable faster than any sum of rates allows for.
    #[error("a cable carries {got}, more than the {} it may", TopologyBuilder::MAX_RATE)]
    TooFast {
        /// Its rate.
        got: BitRate,
    },
    /// A cable longer than any sum of delays allows for.
    #[error("a cable takes {got}, more than the {} it may", TopologyBuilder::MAX_PROPAGATION)]
    TooLong {
        /// Its propagation.
        got: Duration,
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
