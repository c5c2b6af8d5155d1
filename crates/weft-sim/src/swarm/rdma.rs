//! The RDMA swarm's cases ([`weft_rnic::swarm`]) on every processor; panics and cases that do not end are violations.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use weft_rnic::swarm::{Counts, Tally, Violation, run_case};

use super::{Panicked, catch_panic, watchdog};
use crate::batch::for_each_index;

/// The result of a range of seeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RdmaSummary {
    /// The first seed.
    pub first: u64,
    /// Number of seeds that were run.
    pub seeds: usize,
    /// Work requests that were posted to send queues.
    pub requests: u64,
    /// Of those, invalid requests, each of which was refused as required.
    pub refusals: u64,
    /// Receive requests that were posted.
    pub receives: u64,
    /// All counters, by group and name.
    pub counts: BTreeMap<&'static str, Counts>,
    /// Seeds that failed, with the violated promise of each.
    pub failures: BTreeMap<u64, String>,
}

/// Runs the cases of `count` seeds from `first` on, on up to `workers` threads. `progress` is called with the number
/// of finished cases. After a case that does not end no further ones begin.
pub fn run_rdma_swarm(
    first: u64,
    count: usize,
    workers: usize,
    progress: &(dyn Fn(usize) + Sync),
) -> RdmaSummary {
    let stuck = AtomicBool::new(false);
    let outcomes = for_each_index(count, workers, progress, |index| {
        let seed = first.wrapping_add(index as u64);
        if stuck.load(Ordering::Relaxed) {
            return None;
        }
        let ended = watchdog::within(watchdog::LIMIT, move || run(seed));
        stuck.fetch_or(ended.is_none(), Ordering::Relaxed);
        Some((seed, ended.unwrap_or(Err(Failure::DoesNotEnd))))
    });
    let mut all = Tally::default();
    let mut failures = BTreeMap::new();
    let mut seeds = 0;
    for (seed, outcome) in outcomes.into_iter().flatten() {
        seeds += 1;
        match outcome {
            Ok(tally) => all += &tally,
            Err(failure) => {
                failures.insert(seed, failure.to_string());
            }
        }
    }
    RdmaSummary {
        first,
        seeds,
        requests: all.total_requests(),
        refusals: all.total_refusals(),
        receives: all.receives,
        counts: all.groups().into_iter().map(|(name, counts)| (name, counts.clone())).collect(),
        failures,
    }
}

/// The failure of a case.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error(transparent)]
    Panic(#[from] Panicked),
    #[error("watchdog: does not end")]
    DoesNotEnd,
}

fn run(seed: u64) -> Result<Tally, Failure> {
    Ok(catch_panic(|| run_case(seed))??)
}
