//! Random work requests between three devices over a network that loses, duplicates, delays and reorders packets, compared with
//! a model of memory and completions.
//!
//! A case draws devices, queue pairs of every service, and their memory. In each round, programs post random requests,
//! some of them forbidden, while the faults of the network change; in some rounds a host is cut off. Then the faults
//! end, all requests must complete, and every byte of every host's memory is compared with the model.
//! `docs/design/swarm.md` describes what is drawn and checked, and the mutants that the swarm is known to detect.
//!
//! ```
//! let tally = weft_rnic::swarm::run_case(7)?;
//! assert!(tally.total_requests() > 100);
//! # Ok::<(), weft_rnic::swarm::Violation>(())
//! ```

use alloc::collections::BTreeMap;
use alloc::string::String;
use core::ops::AddAssign;

mod case;
mod check;
mod datagrams;
mod end;
mod image;
mod leases;
mod memory;
pub(crate) mod network;
mod pool;
mod post;
mod round;
mod side;
mod trespass;
mod windows;

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub String);

/// Event counts by name.
pub type Counts = BTreeMap<&'static str, u64>;

/// Event counts of cases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Work requests posted to send queues, by operation.
    pub requests: Counts,
    /// Work requests posted to send queues, by flag.
    pub flags: Counts,
    /// Number of receive requests posted.
    pub receives: u64,
    /// Completions of send and receive queues, by status.
    pub outcomes: Counts,
    /// Forbidden requests by reason: each was refused with the matching status, or dropped by a service without
    /// acknowledgements.
    pub refusals: Counts,
    /// Packets by fault, failed paths, and hosts that were cut off.
    pub faults: Counts,
}

impl Tally {
    /// Returns the number of work requests posted to send queues.
    pub fn total_requests(&self) -> u64 {
        self.requests.values().sum()
    }

    /// Returns the number of forbidden requests.
    pub fn total_refusals(&self) -> u64 {
        self.refusals.values().sum()
    }

    /// Returns the groups of counts with their names.
    pub fn groups(&self) -> [(&'static str, &Counts); 5] {
        [
            ("requests", &self.requests),
            ("flags", &self.flags),
            ("outcomes", &self.outcomes),
            ("refusals", &self.refusals),
            ("faults", &self.faults),
        ]
    }
}

impl AddAssign<&Self> for Tally {
    fn add_assign(&mut self, other: &Self) {
        let add = |to: &mut Counts, from: &Counts| {
            from.iter().for_each(|(name, count)| *to.entry(name).or_default() += count);
        };
        add(&mut self.requests, &other.requests);
        add(&mut self.flags, &other.flags);
        add(&mut self.outcomes, &other.outcomes);
        add(&mut self.refusals, &other.refusals);
        add(&mut self.faults, &other.faults);
        self.receives += other.receives;
    }
}

/// Runs the case of a seed and returns its counts. The run is deterministic.
///
/// # Errors
/// An invariant was violated.
pub fn run_case(seed: u64) -> Result<Tally, Violation> {
    case::Case::new(seed).play()
}

/// Adds one to a count.
fn count(counts: &mut Counts, name: &'static str) {
    *counts.entry(name).or_default() += 1;
}

type Checked = Result<(), Violation>;

/// Returns a violation with the text of `otherwise` unless `invariant` is `true`.
fn ensure(invariant: bool, otherwise: impl FnOnce() -> String) -> Checked {
    if invariant { Ok(()) } else { Err(Violation(otherwise())) }
}

#[cfg(test)]
mod tests;
