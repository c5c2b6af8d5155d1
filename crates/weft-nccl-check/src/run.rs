//! The course of a run: the checks one after another, and two threads as ranks.

use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::Args;
use crate::checks::{self, Check, Outcome};
use crate::exchange::Exchange;
use crate::rank::Rank;

/// Runs the checks on a rank, and passes each result to `report`. The first failure ends the run, because the plugin's state is not
/// known any more. Returns `true` if all passed.
pub(crate) fn run_checks(
    rank: &mut Rank<'_>,
    checks: &[&'static Check],
    mut report: impl FnMut(&Check, &Outcome),
) -> bool {
    for check in checks {
        let mut outcome = checks::run(check, rank);
        // The other rank waits for this one before each check.
        if outcome.is_ok()
            && !check.ends_peer
            && let Err(reason) = rank.meet()
        {
            outcome = Err(reason);
        }
        report(check, &outcome);
        rank.free_buffers(outcome.is_ok());
        if outcome.is_err() {
            return false;
        }
    }
    rank.unload().is_ok()
}

/// Runs the checks of a version with two threads as ranks. Returns `true` if all passed.
pub(crate) fn run_threads(args: &Args, version: u8) -> Result<bool> {
    let checks = args.checks()?;
    let [first, second] = Exchange::pair(Duration::from_secs(args.timeout));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut failure = None;
            let mut rank = Rank::new(args, 1, version, second);
            let passed = run_checks(&mut rank, &checks, |check, outcome| {
                if let Err(reason) = outcome {
                    failure = Some((check.name, reason.clone()));
                }
            });
            (passed, failure)
        });
        let mut rank = Rank::new(args, 0, version, first);
        let passed = run_checks(&mut rank, &checks, |check, outcome| {
            checks::print(version, "threads", check.name, outcome)
        });
        drop(rank);
        let (other_passed, failure) = other.join().map_err(|_| anyhow!("rank 1 panicked"))?;
        if let Some((name, reason)) = failure {
            checks::print(version, "threads", name, &Err(format!("rank 1: {reason}")));
        }
        Ok(passed && other_passed)
    })
}
