//! One rank's buffer to all.

use super::{Schedule, Step, check_order};

/// Along a chain, chunk by chunk in a pipeline: `order[0]` is the root. For large buffers; every
/// rank sends everything once.
///
/// # Panics
/// If `order` is no order of all ranks or `chunks` is zero.
pub fn broadcast_chain(order: &[usize], chunks: usize) -> Schedule {
    check_order(order);
    assert!(chunks > 0, "a buffer has a chunk");
    let mut schedule = Schedule::new(order.len(), chunks);
    for chunk in 0..chunks {
        for pair in order.windows(2) {
            schedule.steps[pair[0]].push(Step::Send { to: pair[1], chunk });
            schedule.steps[pair[1]].push(Step::Receive { from: pair[0], chunk });
        }
    }
    schedule
}

/// Along a binomial tree: those who have it double every round. For small buffers.
///
/// # Panics
/// If `order` is no order of all ranks.
pub fn broadcast_tree(order: &[usize]) -> Schedule {
    check_order(order);
    let mut schedule = Schedule::new(order.len(), 1);
    let mut have = 1;
    while have < order.len() {
        for (&from, &to) in order[..have].iter().zip(&order[have..]) {
            schedule.steps[from].push(Step::Send { to, chunk: 0 });
            schedule.steps[to].push(Step::Receive { from, chunk: 0 });
        }
        have *= 2;
    }
    schedule
}
