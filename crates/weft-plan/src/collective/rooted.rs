//! Scatter and gather between a root and all ranks, and the shift to the next rank.

use super::{Schedule, Step};

/// Returns a gather: every rank sends the chunk of its number to the root.
///
/// # Panics
/// If there is no such root.
pub fn gather_direct(ranks: usize, root: usize) -> Schedule {
    assert!(root < ranks, "root {root} of {ranks} ranks");
    let mut schedule = Schedule::new(ranks, ranks);
    for rank in (0..ranks).filter(|&rank| rank != root) {
        schedule.steps[rank].push(Step::send(root, rank));
        schedule.steps[root].push(Step::receive(rank, rank));
    }
    schedule
}

/// Returns a scatter: the root sends to each rank the chunk of its number.
///
/// # Panics
/// If there is no such root.
pub fn scatter_direct(ranks: usize, root: usize) -> Schedule {
    assert!(root < ranks, "root {root} of {ranks} ranks");
    let mut schedule = Schedule::new(ranks, ranks);
    for rank in (0..ranks).filter(|&rank| rank != root) {
        schedule.steps[root].push(Step::send(rank, rank));
        schedule.steps[rank].push(Step::receive(root, rank));
    }
    schedule
}

/// Returns a shift: every rank sends its first chunk into the second of the next rank, as `sendrecv` of
/// nccl-tests does.
///
/// # Panics
/// If `order` does not name every rank once.
pub fn shift(order: &[usize]) -> Schedule {
    super::check_order(order);
    let mut schedule = Schedule::new(order.len(), 2);
    for (place, &rank) in order.iter().enumerate() {
        let next = order[(place + 1) % order.len()];
        if next == rank {
            schedule.steps[rank].push(Step::Copy { chunk: 0, to: 1 });
            continue;
        }
        schedule.steps[rank].push(Step::send(next, 0));
        schedule.steps[next].push(Step::receive(rank, 1));
    }
    schedule
}
