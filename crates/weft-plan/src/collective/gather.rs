//! The two halves of a ring all-reduce, each a collective of its own (Patarasuk and Yuan 2009).

use super::{Schedule, Step, check_order};

/// Returns an all-gather around the ring: every rank's chunk (the one of its number) reaches all ranks. Each
/// rank sends `n − 1` chunks.
///
/// # Panics
/// If `order` does not name every rank once.
pub fn all_gather_ring(order: &[usize]) -> Schedule {
    check_order(order);
    let mut schedule = Schedule::new(order.len(), order.len());
    gather(&mut schedule, order, 0, |place| order[place]);
    schedule
}

/// Returns a reduce-scatter around the ring: the reduction of each chunk reaches the rank of its number. A
/// rank's other chunks hold partial sums afterwards.
///
/// # Panics
/// If `order` does not name every rank once.
pub fn reduce_scatter_ring(order: &[usize]) -> Schedule {
    check_order(order);
    let mut schedule = Schedule::new(order.len(), order.len());
    scatter(&mut schedule, order, |place| order[place]);
    schedule
}

/// Adds a reduce-scatter, after which the rank at place `p` of the ring has the reduction of chunk `chunk(p)`.
pub(super) fn scatter(schedule: &mut Schedule, order: &[usize], chunk: impl Fn(usize) -> usize) {
    let count = order.len();
    for (place, &rank) in order.iter().enumerate() {
        let (next, before) = (order[(place + 1) % count], order[(place + count - 1) % count]);
        for round in 1..count {
            let sent = chunk((place + count - round) % count);
            let got = chunk((place + 2 * count - round - 1) % count);
            schedule.steps[rank].push(Step::send(next, sent));
            schedule.steps[rank].push(Step::Reduce { from: before, chunk: got });
        }
    }
}

/// Adds an all-gather, which copies chunk `chunk(p + shift)` from the rank at place `p` to all.
pub(super) fn gather(
    schedule: &mut Schedule,
    order: &[usize],
    shift: usize,
    chunk: impl Fn(usize) -> usize,
) {
    let count = order.len();
    for (place, &rank) in order.iter().enumerate() {
        let (next, before) = (order[(place + 1) % count], order[(place + count - 1) % count]);
        for round in 0..count - 1 {
            let sent = chunk((place + shift + count - round) % count);
            let got = chunk((place + shift + 2 * count - round - 1) % count);
            schedule.steps[rank].push(Step::send(next, sent));
            schedule.steps[rank].push(Step::receive(before, got));
        }
    }
}
