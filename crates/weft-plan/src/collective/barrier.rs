//! Barrier: no rank leaves before all ranks have entered.

use super::{Schedule, Step};

/// Returns a dissemination barrier (Hensgen, Finkel and Manber 1988): in round `k` every rank notifies the rank
/// `2^k` ahead. The one chunk carries no data; the buffer may be empty.
pub fn barrier(ranks: usize) -> Schedule {
    let mut schedule = Schedule::new(ranks, 1);
    let mut distance = 1;
    while distance < ranks {
        for rank in 0..ranks {
            let (to, from) = ((rank + distance) % ranks, (rank + ranks - distance) % ranks);
            schedule.steps[rank].push(Step::send(to, 0));
            schedule.steps[rank].push(Step::receive(from, 0));
        }
        distance *= 2;
    }
    schedule
}
