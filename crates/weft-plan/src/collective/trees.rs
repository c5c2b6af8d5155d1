//! All-reduce over two trees.

use alloc::vec;
use alloc::vec::Vec;

use super::{Schedule, Step, check_order};
use crate::ring::binary;

/// Returns an all-reduce over two trees, each for half of the chunks: sums go up and results come down, chunk
/// by chunk in a pipeline. `parents[tree][rank]` is `None` for the root.
///
/// # Panics
/// If the trees do not span the same ranks, have a cycle or not exactly one root each, or `chunks_per_tree` is zero.
pub fn all_reduce_trees(parents: [&[Option<usize>]; 2], chunks_per_tree: usize) -> Schedule {
    let ranks = parents[0].len();
    assert!(parents[1].len() == ranks && chunks_per_tree > 0, "two trees over the same ranks");
    let mut schedule = Schedule::new(ranks, 2 * chunks_per_tree);
    let children = parents.map(children_of);
    for rank in 0..ranks {
        for chunk in 0..2 * chunks_per_tree {
            // The trees alternate, so that both are always busy.
            let tree = chunk % 2;
            let steps = &mut schedule.steps[rank];
            let below = children[tree][rank].iter();
            steps.extend(below.map(|&from| Step::Reduce { from, chunk }));
            steps.extend(parents[tree][rank].map(|to| Step::send(to, chunk)));
        }
        for chunk in 0..2 * chunks_per_tree {
            let tree = chunk % 2;
            let steps = &mut schedule.steps[rank];
            steps.extend(parents[tree][rank].map(|from| Step::receive(from, chunk)));
            let below = children[tree][rank].iter();
            steps.extend(below.map(|&to| Step::send(to, chunk)));
        }
    }
    schedule
}

/// Returns [`all_reduce_trees`] over two binary trees of ranks in this order, the second shifted by one, so
/// that the leaves of one are inner nodes of the other.
///
/// # Panics
/// If `order` does not name every rank once, or `chunks_per_tree` is zero.
pub fn all_reduce_double_tree(order: &[usize], chunks_per_tree: usize) -> Schedule {
    let servers: Vec<Vec<usize>> = order.iter().map(|&rank| vec![rank]).collect();
    all_reduce_double_tree_over(&servers, chunks_per_tree)
}

/// Returns [`all_reduce_double_tree_in`] for servers of one block.
///
/// # Panics
/// If `servers` do not name every rank once, one has no rank, or `chunks_per_tree` is zero.
pub fn all_reduce_double_tree_over(servers: &[Vec<usize>], chunks_per_tree: usize) -> Schedule {
    let block = (!servers.is_empty()).then(|| servers.to_vec());
    all_reduce_double_tree_in(&Vec::from_iter(block), chunks_per_tree)
}

/// Returns [`all_reduce_trees`] over two trees of ranks, which are grouped by server, and servers by block of the fabric. Each
/// tree has a binary tree inside every server, one over the roots of every block's servers, and one over the blocks' roots:
/// one edge between servers for each server but the first, and one between blocks for each block but the first, the minimum
/// of both. In the second tree the blocks, the servers of each and the ranks of each are shifted by one, so that only a rank
/// that is alone in its block may be an inner node of both.
///
/// # Panics
/// If the blocks do not name every rank once, a block has no server or a server no rank, or `chunks_per_tree` is zero.
pub fn all_reduce_double_tree_in(blocks: &[Vec<Vec<usize>>], chunks_per_tree: usize) -> Schedule {
    check_order(&blocks.concat().concat());
    let mut shifted = blocks.to_vec();
    shifted.rotate_left(usize::from(!blocks.is_empty()));
    for servers in &mut shifted {
        servers.rotate_left(1);
        servers.iter_mut().for_each(|server| server.rotate_left(1));
    }
    let [one, other] = [blocks, &shifted].map(parents);
    all_reduce_trees([&one, &other], chunks_per_tree)
}

/// Returns the parent of each rank in a tree over blocks of servers.
fn parents(blocks: &[Vec<Vec<usize>>]) -> Vec<Option<usize>> {
    let mut edges = Vec::new();
    let mut of_block = |servers: &Vec<Vec<usize>>| {
        let roots: Vec<usize> = servers.iter().map(|server| binary(server, &mut edges)).collect();
        binary(&roots, &mut edges)
    };
    let roots: Vec<usize> = blocks.iter().map(&mut of_block).collect();
    if !roots.is_empty() {
        binary(&roots, &mut edges);
    }
    let mut parents = vec![None; blocks.iter().flatten().map(Vec::len).sum()];
    edges.into_iter().for_each(|(child, parent)| parents[child] = Some(parent));
    parents
}

fn children_of(parents: &[Option<usize>]) -> Vec<Vec<usize>> {
    let mut children = vec![Vec::new(); parents.len()];
    for (rank, parent) in parents.iter().enumerate() {
        let mut at = rank;
        for _ in 0..parents.len() {
            at = parents[at].unwrap_or(at);
        }
        assert!(parents[at].is_none(), "rank {rank} is below a cycle");
        if let Some(parent) = *parent {
            children[parent].push(rank);
        }
    }
    let roots = parents.iter().filter(|parent| parent.is_none()).count();
    assert!(roots == 1 || parents.is_empty(), "a tree has one root, not {roots}");
    children
}
