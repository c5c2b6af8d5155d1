//! Reduce: the root receives the reduction of all buffers. Other ranks' buffers hold partial results afterwards.

use super::{Schedule, Step, check_order};

/// Returns a reduction along a chain that ends at `order[0]`, the root. Every other rank sends its buffer once.
/// It suits large buffers, of which several blocks are in flight.
///
/// # Panics
/// If `order` does not name every rank once.
pub fn reduce_chain(order: &[usize]) -> Schedule {
    check_order(order);
    let mut schedule = Schedule::new(order.len(), 1);
    for pair in order.windows(2).rev() {
        schedule.steps[pair[0]].push(Step::Reduce { from: pair[1], chunk: 0 });
        schedule.steps[pair[1]].push(Step::send(pair[0], 0));
    }
    schedule
}

/// Returns a reduction along a binomial tree to `order[0]`: the number of ranks with data halves in every
/// round. It suits small buffers.
///
/// # Panics
/// If `order` does not name every rank once.
pub fn reduce_tree(order: &[usize]) -> Schedule {
    check_order(order);
    let mut schedule = Schedule::new(order.len(), 1);
    let mut remaining = order.len().next_power_of_two();
    while remaining > 1 {
        remaining /= 2;
        let senders = order.get(remaining..).unwrap_or_default();
        for (&to, &from) in order.iter().zip(senders).take(remaining) {
            schedule.steps[from].push(Step::send(to, 0));
            schedule.steps[to].push(Step::Reduce { from, chunk: 0 });
        }
    }
    schedule
}
