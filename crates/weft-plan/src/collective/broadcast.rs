//! Broadcast: all ranks receive the root's buffer.

use super::{Schedule, Step, check_order};

/// Returns a broadcast along a chain from `order[0]`, the root, chunk by chunk in a pipeline. Every rank sends
/// the buffer once. It suits large buffers.
///
/// # Panics
/// If `order` does not name every rank once or `chunks` is zero.
pub fn broadcast_chain(order: &[usize], chunks: usize) -> Schedule {
    check_order(order);
    assert!(chunks > 0, "a buffer has a chunk");
    let mut schedule = Schedule::new(order.len(), chunks);
    for chunk in 0..chunks {
        for pair in order.windows(2) {
            schedule.steps[pair[0]].push(Step::send(pair[1], chunk));
            schedule.steps[pair[1]].push(Step::receive(pair[0], chunk));
        }
    }
    schedule
}

/// Returns a broadcast along a binomial tree: the number of ranks with the buffer doubles in every round. It
/// suits small buffers.
///
/// # Panics
/// If `order` does not name every rank once.
pub fn broadcast_tree(order: &[usize]) -> Schedule {
    check_order(order);
    let mut schedule = Schedule::new(order.len(), 1);
    let mut holders = 1;
    while holders < order.len() {
        for (&from, &to) in order[..holders].iter().zip(&order[holders..]) {
            schedule.steps[from].push(Step::send(to, 0));
            schedule.steps[to].push(Step::receive(from, 0));
        }
        holders *= 2;
    }
    schedule
}
