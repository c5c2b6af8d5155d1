//! All-to-all: every rank sends one chunk to each other rank.

use super::{Schedule, Step};

/// Returns an all-to-all: chunk `d` of rank `s` becomes chunk `n + s` of rank `d`. The first half of a buffer
/// is sent, the second received. In round `k` every rank sends to the rank `k` ahead, so that no two send to
/// one rank at a time. Chunks must have equal lengths: the buffer is a multiple of `2 n` elements.
pub fn all_to_all(ranks: usize) -> Schedule {
    let mut schedule = Schedule::new(ranks, 2 * ranks);
    for rank in 0..ranks {
        schedule.steps[rank].push(Step::Copy { chunk: rank, to: ranks + rank });
        for round in 1..ranks {
            let (to, from) = ((rank + round) % ranks, (rank + ranks - round) % ranks);
            schedule.steps[rank].push(Step::Send { to, chunk: to });
            schedule.steps[rank].push(Step::Receive { from, chunk: ranks + from });
        }
    }
    schedule
}
