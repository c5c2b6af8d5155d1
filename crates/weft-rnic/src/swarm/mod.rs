//! Random work requests between three devices, over paths that lose, double, delay and die, against a model of
//! what memory and completions must be.
//!
//! A case draws devices, queue pairs of every service, and their memory. In each of its rounds programs post
//! what comes to mind while the network gets worse and better, now and then ask for what they may not have, and
//! sometimes a host falls silent. Then the network heals, everything must have come to its end, and every byte
//! of every host's memory is held against the model. `docs/design/swarm.md` says what is drawn and held, and
//! which mistakes the swarm is known to notice.
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

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub String);

/// How often each of some named things happened.
pub type Counts = BTreeMap<&'static str, u64>;

/// What cases went through, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Work requests that were posted to send queues, by what they do.
    pub requests: Counts,
    /// How they were posted.
    pub flags: Counts,
    /// Receive requests that were posted.
    pub receives: u64,
    /// Completions of send queues by their status, and of receive queues.
    pub outcomes: Counts,
    /// Requests for what may not be, by why: each was refused with the status that says so, or dropped where
    /// the service does not tell.
    pub refusals: Counts,
    /// Packets by what the network did to them, dead paths and silent hosts.
    pub faults: Counts,
}

impl Tally {
    /// All work requests for send queues.
    pub fn total_requests(&self) -> u64 {
        self.requests.values().sum()
    }

    /// All requests that were refused, and had to be.
    pub fn total_refusals(&self) -> u64 {
        self.refusals.values().sum()
    }

    /// Each count with the name of its group, in order.
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

/// Runs one seed's case; the same every time.
///
/// # Errors
/// A promise was not kept.
pub fn run_case(seed: u64) -> Result<Tally, Violation> {
    case::Case::new(seed).play()
}

fn count(counts: &mut Counts, name: &'static str) {
    *counts.entry(name).or_default() += 1;
}

type Checked = Result<(), Violation>;

/// Holds that something is so.
fn hold(is_so: bool, otherwise: impl FnOnce() -> String) -> Checked {
    if is_so { Ok(()) } else { Err(Violation(otherwise())) }
}

#[cfg(test)]
mod tests;
