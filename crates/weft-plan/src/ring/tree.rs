//! Trees over servers for the tree all-reduce. There are two, so that the leaves of one are inner nodes of the
//! other and both directions of every NIC are used (Sanders, Speck and Träff 2009; NCCL's double binary tree).
//! Each has the minimum number of edges between blocks.

use alloc::vec;
use alloc::vec::Vec;

use super::Transfer;
use crate::cluster::{Cluster, ServerId};

/// A tree over servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The server at the root, which computes the total.
    pub root: ServerId,
    /// Each other server with its parent, parents before their children.
    pub edges: Vec<(ServerId, ServerId)>,
}

impl Tree {
    /// Returns the transfers of a reduction to the root and of the broadcast back, on one rail.
    pub fn hops(&self, rail: usize) -> Vec<Transfer> {
        let hop = |from, to| Transfer { from: (from, rail), to: (to, rail) };
        self.edges
            .iter()
            .flat_map(|&(child, parent)| [hop(child, parent), hop(parent, child)])
            .collect()
    }

    /// Returns the number of edges between the root and the server farthest from it.
    pub fn depth(&self) -> usize {
        let mut depths = vec![(self.root, 0)];
        for &(child, parent) in &self.edges {
            let above = depths.iter().find(|&&(server, _)| server == parent);
            depths.push((child, above.map_or(0, |&(_, depth)| depth) + 1));
        }
        depths.iter().map(|&(_, depth)| depth).max().unwrap_or(0)
    }
}

/// Returns two trees over servers in [`server_order`](super::server_order): a binary tree inside each block,
/// and one over the blocks' roots. In the second tree the servers of every block, and the blocks, are shifted
/// by one.
///
/// A server has at most two children in its block and two that are roots of other blocks.
///
/// # Panics
/// If `order` is empty or names a server that the cluster does not have.
pub fn double_tree(cluster: &Cluster, order: &[ServerId]) -> [Tree; 2] {
    assert!(!order.is_empty(), "a tree needs a server");
    let blocks: Vec<Vec<ServerId>> = order
        .chunk_by(|&a, &b| cluster.block(a) == cluster.block(b))
        .map(<[ServerId]>::to_vec)
        .collect();
    let mut shifted = blocks.clone();
    shifted.rotate_left(1);
    shifted.iter_mut().for_each(|block| block.rotate_left(1));
    [of_blocks(&blocks), of_blocks(&shifted)]
}

/// Returns one tree that ignores blocks, as a library builds it from ranks.
///
/// # Panics
/// If `order` is empty.
pub fn tree_as_listed(order: &[ServerId]) -> Tree {
    of_blocks(&[order.to_vec()])
}

fn of_blocks(blocks: &[Vec<ServerId>]) -> Tree {
    let mut edges = Vec::new();
    let mut inner = Vec::new();
    let roots: Vec<ServerId> = blocks.iter().map(|block| binary(block, &mut inner)).collect();
    let root = binary(&roots, &mut edges);
    // Edges between blocks' roots precede edges inside blocks.
    edges.extend(inner);
    Tree { root, edges }
}

/// Adds the edges of a balanced in-order binary tree and returns its root. Nodes at odd places are inner nodes,
/// so that a shift by one turns leaves into inner nodes.
pub(crate) fn binary<T: Copy>(servers: &[T], edges: &mut Vec<(T, T)>) -> T {
    let root = root_of(0, servers.len());
    let mut open = vec![(0, servers.len(), root)];
    while let Some((start, end, top)) = open.pop() {
        for (start, end) in [(start, top), (top + 1, end)] {
            if start < end {
                let below = root_of(start, end);
                edges.push((servers[below], servers[top]));
                open.push((start, end, below));
            }
        }
    }
    servers[root]
}

/// Returns the place in `start..end` which, counted from one, the highest power of two divides.
fn root_of(start: usize, end: usize) -> usize {
    // `start` and `end` agree above the highest bit in which they differ.
    let differ = usize::BITS - 1 - (start ^ end).leading_zeros();
    (end >> differ << differ) - 1
}
