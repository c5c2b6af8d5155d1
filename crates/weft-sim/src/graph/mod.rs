//! Graphs of a job's work: messages, computation and collectives, each of which starts when others are done.
//!
//! Readers of [`import`](crate::import) make a [`Graph`] with a [`GraphBuilder`], and the `graph` workload runs it. A
//! graph is checked when it is built: a cycle, a receive without a send or collectives in a different order on two
//! ranks would never end, and the error names the first node that waits for ever. A node takes 32 bytes and a
//! dependency 4, so that traces of a hundred million nodes fit in memory; collectives are one node on each rank and are
//! expanded while they run.

use weft_plan::collective::Collective;

use crate::time::SimSpan;

mod builder;
mod check;
mod error;
mod matching;

pub use builder::GraphBuilder;
pub use error::GraphError;
pub use matching::Matching;

/// Accepts a message from any rank, or with any tag.
pub const ANY: u32 = u32::MAX;

/// Maximum number of nodes: an edge has two bits for its kind.
pub const MAX_NODES: u32 = 1 << 30;

/// The work of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Takes no time: joins the nodes before it.
    Join,
    /// Starts one dependent for each dependency that is done, in the order of the dependents.
    Relay,
    /// Waits for a time.
    Delay(SimSpan),
    /// Computes on a unit of the rank, which computes one thing at a time: the lowest node that is ready.
    Compute {
        /// The time.
        span: SimSpan,
        /// The unit, a number of the rank.
        unit: u8,
    },
    /// Sends a message. It is done when the sender knows that the receiver has it.
    Send {
        /// The receiving rank.
        to: u32,
        /// The length, bytes; an empty message has one byte on the wire.
        bytes: u64,
        /// The number that a receive must name.
        tag: u32,
    },
    /// Waits for a message.
    Receive {
        /// The sending rank, or [`ANY`].
        from: u32,
        /// The message's tag, or [`ANY`].
        tag: u32,
    },
    /// Takes part in a collective of [`Graph::operations`].
    Collective(u32),
}

/// A node of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The work.
    pub op: Op,
    /// The rank that does it.
    pub rank: u32,
    /// The node's number in its file, for errors.
    pub label: u32,
}

/// The event of a node for which a dependent waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The node is done.
    Done,
    /// The node has started.
    Started,
    /// The message of a send has arrived; its sender may not know yet.
    Delivered,
}

/// An operation in which every rank of a group takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The operation.
    pub kind: Collective,
    /// The group, an index in [`Graph::groups`].
    pub group: u32,
    /// The bytes of the whole: a rank's vector where all have one (all-reduce, broadcast, reduce), the gathered or
    /// scattered total, and for all-to-all the sum of what one rank sends.
    pub bytes: u64,
    /// The root's place in the group, for operations that have one.
    pub root: u32,
}

/// A graph that is complete and can be executed to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    ranks: u32,
    nodes: Vec<Node>,
    groups: Vec<Vec<u32>>,
    operations: Vec<Operation>,
    /// The first edge of each node; one more than there are nodes.
    first_edge: Vec<u32>,
    /// The dependents, with [`When`] in the two highest bits.
    edges: Vec<u32>,
}

impl Graph {
    /// Returns the number of ranks.
    pub const fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Returns the nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the groups of ranks.
    pub fn groups(&self) -> &[Vec<u32>] {
        &self.groups
    }

    /// Returns the collectives, each once for all its ranks.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Returns the number of dependencies.
    pub const fn dependencies(&self) -> usize {
        self.edges.len()
    }

    /// Returns the nodes that wait for a node, each with the event it waits for.
    pub fn dependents(&self, node: u32) -> impl Iterator<Item = (u32, When)> + '_ {
        let node = node as usize;
        let edges = self.first_edge[node] as usize..self.first_edge[node + 1] as usize;
        self.edges[edges].iter().map(|&edge| unpacked(edge))
    }

    /// Returns a node that waits for a node, by its place among the dependents.
    pub fn dependent(&self, node: u32, place: usize) -> Option<u32> {
        let node = node as usize;
        let edges = self.first_edge[node] as usize..self.first_edge[node + 1] as usize;
        self.edges[edges].get(place).map(|&edge| unpacked(edge).0)
    }

    /// Returns the number of dependencies of every node.
    pub fn dependency_counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.nodes.len()];
        for &edge in &self.edges {
            counts[(edge & (MAX_NODES - 1)) as usize] += 1;
        }
        counts
    }

    /// Returns a matching for every rank; none if no node waits for a message.
    pub fn matching(&self) -> Vec<Matching> {
        let is_receive = |node: &Node| matches!(node.op, Op::Receive { .. });
        let ranks = if self.nodes.iter().any(is_receive) { self.ranks as usize } else { 0 };
        vec![Matching::default(); ranks]
    }

    /// Returns the bytes that all ranks send, without what a transport adds: messages, and the parts of collectives as
    /// [`Collective::bus_factor`] counts them.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bytes of a report"
    )]
    pub fn bytes(&self) -> u64 {
        let sent = |node: &Node| match node.op {
            Op::Send { bytes, .. } => bytes,
            _ => 0,
        };
        let messages: u64 = self.nodes.iter().map(sent).fold(0, u64::saturating_add);
        let collective = |operation: &Operation| {
            let ranks = self.groups[operation.group as usize].len();
            operation.kind.bus_factor(ranks) * operation.bytes as f64 * ranks as f64
        };
        messages.saturating_add(self.operations.iter().map(collective).sum::<f64>() as u64)
    }

    /// Returns the memory of the graph and of its execution before messages are in flight, bytes.
    pub fn memory(&self) -> u64 {
        let groups: usize = self.groups.iter().map(Vec::len).sum();
        let nodes = self.nodes.len();
        builder::memory(nodes, self.edges.len(), self.operations.len(), groups)
            + builder::memory_of_ranks(self.ranks)
    }
}

/// Returns the node and the event of an edge.
const fn unpacked(edge: u32) -> (u32, When) {
    let when = match edge >> 30 {
        0 => When::Done,
        1 => When::Started,
        _ => When::Delivered,
    };
    (edge & (MAX_NODES - 1), when)
}
