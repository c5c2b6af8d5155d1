//! All-reduce: every rank receives the reduction of all ranks' buffers.

use alloc::vec::Vec;

use super::gather::{gather, scatter};
use super::{Schedule, Step, check_order};

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
        schedule.steps[rank].push(Step::send(partner, chunk));
        schedule.steps[partner].push(Step::Reduce { from: rank, chunk });
    }
    let mut bit = 1;
    while bit < power {
        for rank in 0..power {
            let partner = rank ^ bit;
            schedule.steps[rank].push(Step::send(partner, chunk));
            schedule.steps[rank].push(Step::Reduce { from: partner, chunk });
        }
        bit *= 2;
    }
    for rank in power..ranks {
        let partner = rank - power;
        schedule.steps[partner].push(Step::send(rank, chunk));
        schedule.steps[rank].push(Step::receive(partner, chunk));
    }
    schedule
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
