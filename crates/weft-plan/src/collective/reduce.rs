//! All ranks' buffers, reduced to one. Other ranks' buffers hold parts of results afterwards.

use super::{Schedule, Step, check_order};

/// Along a chain that ends at `order[0]`, the root: every rank but the root sends everything once. For large buffers,
/// of which several blocks are under way.
///
/// # Panics
/// If `order` is no order of all ranks.
pub fn reduce_chain(order: &[usize]) -> Schedule {
    check_order(order);
    let mut schedule = Schedule::new(order.len(), 1);
    for pair in order.windows(2).rev() {
        schedule.steps[pair[0]].push(Step::Reduce { from: pair[1], chunk: 0 });
        schedule.steps[pair[1]].push(Step::Send { to: pair[0], chunk: 0 });
    }
    schedule
}

/// Along a binomial tree to `order[0]`: those who still have something halve every round. For small buffers.
///
/// # Panics
/// If `order` is no order of all ranks.
pub fn reduce_tree(order: &[usize]) -> Schedule {
    check_order(order);
    let mut schedule = Schedule::new(order.len(), 1);
    let mut have = order.len().next_power_of_two();
    while have > 1 {
        have /= 2;
        let late = order.get(have..).unwrap_or_default();
        for (&to, &from) in order.iter().zip(late).take(have) {
            schedule.steps[from].push(Step::Send { to, chunk: 0 });
            schedule.steps[to].push(Step::Reduce { from, chunk: 0 });
        }
    }
    schedule
}
