//! Builds a graph, node by node.

use std::collections::{BTreeMap, BTreeSet};

use weft_plan::collective::Collective;
use weft_units::ByteCount;

use super::{Graph, GraphError, MAX_NODES, Matching, Node, Op, Operation, When};

/// Maximum number of ranks of a group: a schedule has a step for every pair of ranks.
const MAX_MEMBERS: usize = 2048;
/// Number of ranks of a group that an error names.
const MAX_NAMED: usize = 8;

/// A graph in the making.
#[derive(Debug)]
pub struct GraphBuilder {
    ranks: u32,
    /// The memory that the graph may use, bytes.
    limit: u64,
    nodes: Vec<Node>,
    /// Each dependency: the node before, and the node after with [`When`] in the two highest bits.
    edges: Vec<(u32, u32)>,
    groups: Vec<Vec<u32>>,
    members: usize,
    operations: Vec<Operation>,
    /// The index in `operations` of each operation of a group.
    of_group: Vec<Vec<u32>>,
    /// The number of operations that a rank of a group has taken part in, and its last node.
    taken: BTreeMap<(u32, u32), (usize, u32)>,
}

/// Returns the memory of a graph of this size and of its execution, bytes: while it is built, an edge is there
/// twice.
pub(super) fn memory(nodes: usize, edges: usize, operations: usize, members: usize) -> u64 {
    let node = size_of::<Node>() + 3 * size_of::<u32>();
    let bytes = nodes * node + edges * 3 * size_of::<u32>();
    (bytes + operations * (size_of::<Operation>() + 16) + members * 16) as u64
}

/// Returns the memory of the state of ranks, bytes.
pub(super) fn memory_of_ranks(ranks: u32) -> u64 {
    u64::from(ranks) * (size_of::<Matching>() as u64 + 16)
}

impl GraphBuilder {
    /// Returns an empty graph of `ranks` ranks, which may use `limit` bytes of memory.
    pub fn new(ranks: u32, limit: u64) -> Self {
        Self {
            ranks,
            limit,
            nodes: Vec::new(),
            edges: Vec::new(),
            groups: Vec::new(),
            members: 0,
            operations: Vec::new(),
            of_group: Vec::new(),
            taken: BTreeMap::new(),
        }
    }

    /// Returns the number of ranks.
    pub const fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Returns the number of nodes so far.
    pub fn len(&self) -> u32 {
        u32::try_from(self.nodes.len()).expect("at most 2^30 nodes")
    }

    /// Returns `true` if there are no nodes yet.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns a node.
    ///
    /// # Panics
    /// If it does not exist.
    pub fn node(&self, node: u32) -> Node {
        self.nodes[node as usize]
    }

    /// Checks that a rank exists.
    ///
    /// # Errors
    /// `NoSuchRank`.
    pub fn rank(&self, rank: u64) -> Result<u32, GraphError> {
        let fits = u32::try_from(rank).ok().filter(|&rank| rank < self.ranks);
        fits.ok_or(GraphError::NoSuchRank { got: rank, ranks: self.ranks })
    }

    /// Adds a node; `label` is its number in the file. Returns its index.
    ///
    /// # Errors
    /// There are too many nodes, or the graph does not fit in memory.
    pub fn add(&mut self, rank: u32, label: u32, op: Op) -> Result<u32, GraphError> {
        let index = self.nodes.len();
        if index >= MAX_NODES as usize {
            return Err(GraphError::TooManyNodes { max: MAX_NODES });
        }
        if index.is_multiple_of(4096) {
            self.check_memory(1.0)?;
        }
        self.nodes.push(Node { op, rank, label });
        Ok(u32::try_from(index).expect("fewer than 2^30"))
    }

    /// Makes `after` wait for an event of `before`.
    ///
    /// # Errors
    /// The graph does not fit in memory.
    ///
    /// # Panics
    /// If a node does not exist.
    pub fn depend(&mut self, after: u32, before: u32, when: When) -> Result<(), GraphError> {
        assert!(after.max(before) < self.len(), "an edge joins two nodes");
        if self.edges.len().is_multiple_of(4096) {
            self.check_memory(1.0)?;
            let full = self.edges.len() >= u32::MAX as usize;
            (!full).then_some(()).ok_or(GraphError::TooManyNodes { max: MAX_NODES })?;
        }
        self.edges.push((before, after | (when as u32) << 30));
        Ok(())
    }

    /// Adds a group of ranks; returns its number.
    ///
    /// # Errors
    /// A rank does not exist, or the group is larger than a schedule may be.
    pub fn group(&mut self, ranks: Vec<u32>) -> Result<u32, GraphError> {
        ranks.iter().try_for_each(|&rank| self.rank(rank.into()).map(drop))?;
        let distinct: BTreeSet<u32> = ranks.iter().copied().collect();
        if ranks.is_empty() || ranks.len() > MAX_MEMBERS || distinct.len() < ranks.len() {
            let (count, group) = (ranks.len(), named(&ranks));
            return Err(GraphError::Group { count, group, max: MAX_MEMBERS });
        }
        self.members += ranks.len();
        self.groups.push(ranks);
        self.of_group.push(Vec::new());
        Ok(u32::try_from(self.groups.len() - 1).expect("fewer groups than nodes"))
    }

    /// Returns the ranks of a group.
    pub fn group_ranks(&self, group: u32) -> &[u32] {
        &self.groups[group as usize]
    }

    /// Adds a rank's part in its next collective of a group: the nth call of every rank is the same operation. `root`
    /// is a place in the group. Operations of a group follow each other on every rank, as those of a communicator do.
    ///
    /// # Errors
    /// Another rank's nth operation differs, or as [`Self::add`].
    pub fn collective(
        &mut self,
        rank: u32,
        label: u32,
        operation: Operation,
    ) -> Result<u32, GraphError> {
        let ranks = &self.groups[operation.group as usize];
        let before = self.taken.get(&(operation.group, rank)).copied();
        if before.is_none() && !ranks.contains(&rank) {
            return Err(GraphError::NotInGroup { rank, group: named(ranks) });
        }
        let number = before.map_or(0, |(number, _)| number);
        let known = &mut self.of_group[operation.group as usize];
        let index = match known.get(number) {
            Some(&index) => {
                let expected = self.operations[index as usize];
                if expected != operation {
                    return Err(GraphError::Different {
                        group: named(ranks),
                        number: number + 1,
                        rank,
                        got: operation.to_string(),
                        expected: expected.to_string(),
                    });
                }
                index
            }
            None => {
                let index = u32::try_from(self.operations.len()).expect("fewer than nodes");
                known.push(index);
                self.operations.push(operation);
                index
            }
        };
        let node = self.add(rank, label, Op::Collective(index))?;
        if let Some((_, before)) = before {
            self.depend(node, before, When::Done)?;
        }
        self.taken.insert((operation.group, rank), (number + 1, node));
        Ok(node)
    }

    /// Checks that the graph fits in memory if this is `share` of it.
    ///
    /// # Errors
    /// `Memory`.
    pub fn check_memory(&self, share: f64) -> Result<(), GraphError> {
        let now = memory(self.nodes.len(), self.edges.len(), self.operations.len(), self.members);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an estimate of bytes"
        )]
        let need = (now as f64 / share.clamp(1e-6, 1.0)) as u64;
        let need = need.saturating_add(memory_of_ranks(self.ranks));
        let fits = need <= self.limit;
        let limit = ByteCount(self.limit);
        if fits { Ok(()) } else { Err(GraphError::Memory { need: ByteCount(need), limit }) }
    }

    /// Returns the graph.
    ///
    /// # Errors
    /// A message or a rank of a collective is missing, or nodes wait for each other: the graph would never end.
    pub fn build(self) -> Result<Graph, GraphError> {
        self.check_memory(1.0)?;
        let mut first_edge = vec![0u32; self.nodes.len() + 1];
        for &(before, _) in &self.edges {
            first_edge[before as usize + 1] += 1;
        }
        for node in 1..first_edge.len() {
            first_edge[node] += first_edge[node - 1];
        }
        let mut next = first_edge.clone();
        let mut edges = vec![0; self.edges.len()];
        for &(before, after) in &self.edges {
            let at = &mut next[before as usize];
            edges[*at as usize] = after;
            *at += 1;
        }
        let Self { ranks, nodes, groups, operations, .. } = self;
        let graph = Graph { ranks, nodes, groups, operations, first_edge, edges };
        super::check::check(&graph)?;
        Ok(graph)
    }
}

/// Returns the ranks of a group as an error names them.
fn named(ranks: &[u32]) -> String {
    let some: Vec<String> = ranks.iter().take(MAX_NAMED).map(u32::to_string).collect();
    let more = if ranks.len() > MAX_NAMED { ", ..." } else { "" };
    format!("{}{more}", some.join(", "))
}

/// The name of a collective in texts that people read.
impl std::fmt::Display for Operation {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} of {} bytes", self.kind, self.bytes)
    }
}

impl Operation {
    /// Returns an operation without a root.
    pub const fn new(kind: Collective, group: u32, bytes: u64) -> Self {
        Self { kind, group, bytes, root: 0 }
    }
}
