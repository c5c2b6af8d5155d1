//! Every rank's chunks, one for each other rank.

use super::{Schedule, Step};

/// Chunk `d` of rank `s` becomes chunk `n + s` of rank `d`: a buffer holds what is sent in its first
/// half and what is received in its second. In round `k` every rank sends `k` ranks ahead, so that
/// no two send to one at a time. Chunks have to be equally long: the buffer is a multiple of `2 n`
/// elements.
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
