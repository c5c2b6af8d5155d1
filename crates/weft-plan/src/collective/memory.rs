//! Execution of a schedule in memory, with all ranks in one process.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use super::{DataType, Reduction, Schedule, Step};

/// A deadlock: a rank waits for a chunk that no rank sends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rank {rank} waits at step {step} of {steps} for a chunk that no rank sends")]
pub struct Deadlock {
    /// The first waiting rank.
    pub rank: usize,
    /// Number of steps that it has completed.
    pub step: usize,
    /// Number of steps of its schedule.
    pub steps: usize,
}

/// Performs every step of every rank on the buffers, which have equal lengths.
///
/// # Errors
/// Returns [`Deadlock`], which the schedules of this module never cause.
///
/// # Panics
/// If the numbers of buffers and ranks differ, lengths differ, or a buffer does not hold whole elements.
pub fn run(
    schedule: &Schedule,
    buffers: &mut [Vec<u8>],
    data_type: DataType,
    reduction: Reduction,
) -> Result<(), Deadlock> {
    assert_eq!(buffers.len(), schedule.ranks(), "a buffer for each rank");
    let bytes = buffers.first().map_or(0, Vec::len);
    assert!(buffers.iter().all(|buffer| buffer.len() == bytes), "buffers are equally long");
    let elements = bytes / data_type.size();
    let byte_range = |chunk| {
        let range = schedule.chunk(chunk, elements);
        range.start * data_type.size()..range.end * data_type.size()
    };
    let mut in_flight: BTreeMap<(usize, usize), VecDeque<Vec<u8>>> = BTreeMap::new();
    let mut done = vec![0; schedule.ranks()];
    loop {
        let mut progressed = false;
        for (rank, buffer) in buffers.iter_mut().enumerate() {
            while let Some(&step) = schedule.steps[rank].get(done[rank]) {
                match step {
                    Step::Send { to, chunks } => {
                        let message = chunks.iter().flat_map(|chunk| &buffer[byte_range(chunk)]);
                        let message: Vec<u8> = message.copied().collect();
                        in_flight.entry((rank, to)).or_default().push_back(message);
                    }
                    Step::Copy { chunk, to } => {
                        buffer.copy_within(byte_range(chunk), byte_range(to).start)
                    }
                    Step::Receive { from, .. } | Step::Reduce { from, .. } => {
                        let Some(received) =
                            in_flight.get_mut(&(from, rank)).and_then(VecDeque::pop_front)
                        else {
                            break;
                        };
                        match step {
                            Step::Reduce { chunk, .. } => {
                                let into = &mut buffer[byte_range(chunk)];
                                data_type.reduce(reduction, into, &received);
                            }
                            Step::Receive { chunks, .. } => {
                                let mut rest = &received[..];
                                for range in chunks.iter().map(byte_range) {
                                    let (chunk, behind) = rest.split_at(range.len());
                                    buffer[range].copy_from_slice(chunk);
                                    rest = behind;
                                }
                            }
                            Step::Send { .. } | Step::Copy { .. } => {}
                        }
                    }
                }
                done[rank] += 1;
                progressed = true;
            }
        }
        let waiting = (0..done.len()).find(|&rank| done[rank] < schedule.steps[rank].len());
        match waiting {
            None => return Ok(()),
            Some(rank) if !progressed => {
                let (step, steps) = (done[rank], schedule.steps[rank].len());
                return Err(Deadlock { rank, step, steps });
            }
            Some(_) => {}
        }
    }
}
