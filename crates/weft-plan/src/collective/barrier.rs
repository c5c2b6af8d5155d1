//! Nobody leaves before all have come.

use super::{Schedule, Step};

/// Dissemination (Hensgen, Finkel and Manber 1988): in round `k` everybody tells who is `2^k` ahead.
/// The one chunk carries nothing; a buffer of no elements will do.
pub fn barrier(ranks: usize) -> Schedule {
    let mut schedule = Schedule::new(ranks, 1);
    let mut distance = 1;
    while distance < ranks {
        for rank in 0..ranks {
            let (to, from) = ((rank + distance) % ranks, (rank + ranks - distance) % ranks);
            schedule.steps[rank].push(Step::Send { to, chunk: 0 });
            schedule.steps[rank].push(Step::Receive { from, chunk: 0 });
        }
        distance *= 2;
    }
    schedule
}
