//! All-reduce: every rank receives the reduction of all ranks' buffers.

use alloc::vec;
use alloc::vec::Vec;

use super::gather::{gather, scatter};
use super::{Schedule, Step, check_order};
use crate::ring::binary;

/// Returns a ring all-reduce: reduce-scatter, then all-gather. Each rank sends `2 (n − 1)` of `n` chunks, the
/// minimum of all algorithms (Patarasuk and Yuan 2009).
///
/// # Panics
/// If `order` does not name every rank once.
pub fn all_reduce_ring(order: &[usize]) -> Schedule {
    check_order(order);
    let mut schedule = Schedule::new(order.len(), order.len());
    scatter(&mut schedule, order, |place| place);
    gather(&mut schedule, order, 0, |place| place);
    schedule
}

/// Returns an all-reduce by recursive doubling: in round `k`, ranks that differ in bit `k` exchange their whole
/// buffers. Its `log2 n` rounds suit buffers so small that only the number of rounds matters. If `n` is no
/// power of two, the ranks beyond it first send their buffers to a partner, which returns the result (Thakur,
/// Rabenseifner and Gropp 2005, section 4.4).
///
/// All ranks have the same bits afterwards, because both partners reduce the same two operands and reductions commute.
pub fn all_reduce_doubling(ranks: usize) -> Schedule {
    let mut schedule = Schedule::new(ranks, 1);
    let chunk = 0;
    let power = if ranks == 0 { 0 } else { 1 << ranks.ilog2() };
    for rank in power..ranks {
        let partner = rank - power;
        schedule.steps[rank].push(Step::Send { to: partner, chunk });
        schedule.steps[partner].push(Step::Reduce { from: rank, chunk });
    }
    let mut bit = 1;
    while bit < power {
        for rank in 0..power {
            let partner = rank ^ bit;
            schedule.steps[rank].push(Step::Send { to: partner, chunk });
            schedule.steps[rank].push(Step::Reduce { from: partner, chunk });
        }
        bit *= 2;
    }
    for rank in power..ranks {
        let partner = rank - power;
        schedule.steps[partner].push(Step::Send { to: rank, chunk });
        schedule.steps[rank].push(Step::Receive { from: partner, chunk });
    }
    schedule
}

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
            steps.extend(parents[tree][rank].map(|to| Step::Send { to, chunk }));
        }
        for chunk in 0..2 * chunks_per_tree {
            let tree = chunk % 2;
            let steps = &mut schedule.steps[rank];
            steps.extend(parents[tree][rank].map(|from| Step::Receive { from, chunk }));
            let below = children[tree][rank].iter();
            steps.extend(below.map(|&to| Step::Send { to, chunk }));
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
    check_order(order);
    let mut shifted = order.to_vec();
    shifted.rotate_left(usize::from(!order.is_empty()));
    let [one, other] = [order, &shifted].map(|order| {
        let mut edges = Vec::new();
        if !order.is_empty() {
            binary(order, &mut edges);
        }
        let mut parents = vec![None; order.len()];
        edges.into_iter().for_each(|(child, parent)| parents[child] = Some(parent));
        parents
    });
    all_reduce_trees([&one, &other], chunks_per_tree)
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

/// Returns a hierarchical all-reduce: each server reduces and scatters its buffers over its ranks, the ranks of
/// one number reduce their share around a ring over servers, and each server gathers the results. Between
/// servers each rank sends only its share, on its own rail.
///
/// `servers[s]` are the ranks of a server, in the order of the ring inside it.
///
/// # Panics
/// If numbers of ranks differ between servers, or servers do not name every rank once.
pub fn all_reduce_hierarchical(servers: &[Vec<usize>]) -> Schedule {
    check_order(&servers.concat());
    let local = servers.first().map_or(0, Vec::len);
    assert!(servers.iter().all(|server| server.len() == local), "servers have equally many ranks");
    // The rank at place p of a server has chunks p·s .. (p+1)·s after the first phase.
    let share = servers.len();
    let mut schedule = Schedule::new(local * share, (local * share).max(1));
    for server in servers {
        for piece in 0..share {
            scatter(&mut schedule, server, |place| place * share + piece);
        }
    }
    for place in 0..local {
        let rail: Vec<usize> = servers.iter().map(|server| server[place]).collect();
        scatter(&mut schedule, &rail, |piece| place * share + piece);
        gather(&mut schedule, &rail, 0, |piece| place * share + piece);
    }
    for server in servers {
        for piece in 0..share {
            gather(&mut schedule, server, 0, |place| place * share + piece);
        }
    }
    schedule
}
