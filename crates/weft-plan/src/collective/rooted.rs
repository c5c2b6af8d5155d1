//! One rank's chunks to the ranks of their numbers, and back.

use super::{Schedule, Step};

/// Every rank's chunk, the one of its number, to the root.
///
/// # Panics
/// If there is no such rank.
pub fn gather_direct(ranks: usize, root: usize) -> Schedule {
    assert!(root < ranks, "root {root} of {ranks} ranks");
    let mut schedule = Schedule::new(ranks, ranks);
    for rank in (0..ranks).filter(|&rank| rank != root) {
        schedule.steps[rank].push(Step::Send { to: root, chunk: rank });
        schedule.steps[root].push(Step::Receive { from: rank, chunk: rank });
    }
    schedule
}

/// Each of the root's chunks to the rank of its number.
///
/// # Panics
/// If there is no such rank.
pub fn scatter_direct(ranks: usize, root: usize) -> Schedule {
    assert!(root < ranks, "root {root} of {ranks} ranks");
    let mut schedule = Schedule::new(ranks, ranks);
    for rank in (0..ranks).filter(|&rank| rank != root) {
        schedule.steps[root].push(Step::Send { to: rank, chunk: rank });
        schedule.steps[rank].push(Step::Receive { from: root, chunk: rank });
    }
    schedule
}

/// Everybody's first chunk to the second of the next in the order: what `sendrecv` of nccl-tests does.
///
/// # Panics
/// If `order` is no order of all ranks.
pub fn shift(order: &[usize]) -> Schedule {
    super::check_order(order);
    let mut schedule = Schedule::new(order.len(), 2);
    for (place, &rank) in order.iter().enumerate() {
        let next = order[(place + 1) % order.len()];
        if next == rank {
            schedule.steps[rank].push(Step::Copy { chunk: 0, to: 1 });
            continue;
        }
        schedule.steps[rank].push(Step::Send { to: next, chunk: 0 });
        schedule.steps[next].push(Step::Receive { from: rank, chunk: 1 });
    }
    schedule
}
