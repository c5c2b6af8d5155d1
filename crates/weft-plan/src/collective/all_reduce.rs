//! Reductions of every rank's buffer to all ranks.

use alloc::vec;
use alloc::vec::Vec;

use super::gather::{gather, scatter};
use super::{Schedule, Step, check_order};
use crate::ring::binary;

/// A ring: reduce-scatter, then all-gather. Each rank sends `2 (n − 1)` of `n` chunks, which is the
/// least that any algorithm sends (Patarasuk and Yuan 2009).
///
/// # Panics
/// If `order` is no order of all ranks.
pub fn all_reduce_ring(order: &[usize]) -> Schedule {
    check_order(order);
    let mut schedule = Schedule::new(order.len(), order.len());
    scatter(&mut schedule, order, |place| place);
    gather(&mut schedule, order, 0, |place| place);
    schedule
}

/// Recursive doubling: in round `k` ranks whose numbers differ in bit `k` exchange all they have. `log2 n` rounds of
/// the whole buffer: for buffers so small that only rounds count. Where `n` is no power of two, the ranks beyond it hand
/// theirs in first and are told at the end (Thakur, Rabenseifner and Gropp 2005, section 4.4).
///
/// All ranks have the same bits afterwards: the operands of each reduction are the same two, and it is commutative.
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

/// Two trees, each for half of the chunks: sums go up, results come down, chunk by chunk in a
/// pipeline. `parents[tree][rank]` is none for the root.
///
/// # Panics
/// If the trees do not span the same ranks, have other than one root each or a cycle, or
/// `chunks_per_tree` is zero.
pub fn all_reduce_trees(parents: [&[Option<usize>]; 2], chunks_per_tree: usize) -> Schedule {
    let ranks = parents[0].len();
    assert!(parents[1].len() == ranks && chunks_per_tree > 0, "two trees over the same ranks");
    let mut schedule = Schedule::new(ranks, 2 * chunks_per_tree);
    let children = parents.map(children_of);
    for rank in 0..ranks {
        for chunk in 0..2 * chunks_per_tree {
            // The trees take turns, so that both are busy all the time.
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

/// [`all_reduce_trees`] over two binary trees in which ranks stand in this order, the second shifted by one, so that the
/// leaves of one are inner nodes of the other.
///
/// # Panics
/// If `order` is no order of all ranks, or `chunks_per_tree` is zero.
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

/// Inside of servers first: each server reduces and scatters its buffer over its ranks, the ranks
/// of one number reduce their share around a ring over servers, and each server gathers the results.
/// Between servers goes only what a rank holds then, on its own rail.
///
/// `servers[s]` are the ranks of a server, in the order of the ring inside of it.
///
/// # Panics
/// If servers have not equally many ranks, or do not name every rank once.
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
