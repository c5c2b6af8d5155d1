//! The events that a swarm must reach. A mistake that disables a mechanism violates no check of a single case if a
//! slower mechanism gives the same result; but then the counter of that mechanism stays zero over many cases.

use std::ops::AddAssign;

use weft_seal::SealCounters;
use weft_transport::Stats;

use crate::world::World;

/// Number of cases from which on every event must have been reached.
pub(super) const MIN_CASES: usize = 100;

/// The same for encrypting cases: most are under attack, and packets of set-up are few.
const MIN_SEALED_CASES: usize = 1_000;

/// Counts of the engines' reactions to faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    fast_retransmits: u64,
    timeout_retransmits: u64,
    spurious_retransmits: u64,
    ecn_marks_reported: u64,
    paths_down: u64,
    paths_up: u64,
    /// Counters of encryption, if there is any.
    seals: SealCounters,
}

impl Reach {
    /// Returns the counts of this world's engines since each one's last restart.
    pub(super) fn of(world: &World) -> Self {
        let mut reach = Self::default();
        for host in &world.network.hosts {
            reach += host.endpoint.stats();
            if let Some(seals) = host.seals() {
                reach.seals.add(&seals.counters());
            }
        }
        reach
    }

    /// Returns the events that never happened in this number of cases, as sentences.
    pub(super) fn missing(&self, cases: usize) -> Vec<String> {
        let rows = [
            (self.fast_retransmits, "no packet was retransmitted because it was overtaken"),
            (self.timeout_retransmits, "no packet was retransmitted after its timeout"),
            (self.spurious_retransmits, "no packet was retransmitted spuriously"),
            (self.ecn_marks_reported, "no congestion mark was reported"),
            (self.paths_down, "no path went down"),
            (self.paths_up, "no path came back"),
        ];
        let seals = &self.seals;
        let sealed = [
            (seals.replayed, "no replay was refused"),
            (seals.not_authentic, "no forgery was refused"),
            (seals.in_clear, "no packet in the clear was refused"),
            (seals.refused_exchanges, "no key exchange was refused"),
            (seals.unknown_key, "no key was unknown"),
            (seals.clear, "no connection was left unencrypted"),
        ];
        let sealed = sealed.into_iter().filter(|_| seals.sealed > 0 && cases >= MIN_SEALED_CASES);
        let rows = rows.into_iter().chain(sealed);
        let never = rows.filter(|(count, _)| *count == 0);
        never.map(|(_, text)| format!("reach: in {cases} cases {text}")).collect()
    }
}

impl AddAssign<&Stats> for Reach {
    fn add_assign(&mut self, stats: &Stats) {
        *self += Self {
            fast_retransmits: stats.fast_retransmits,
            timeout_retransmits: stats.timeout_retransmits,
            spurious_retransmits: stats.spurious_retransmits,
            ecn_marks_reported: stats.ecn_marks_reported,
            paths_down: stats.paths_down,
            paths_up: stats.paths_up,
            seals: SealCounters::default(),
        };
    }
}

impl AddAssign for Reach {
    fn add_assign(&mut self, other: Self) {
        self.fast_retransmits += other.fast_retransmits;
        self.timeout_retransmits += other.timeout_retransmits;
        self.spurious_retransmits += other.spurious_retransmits;
        self.ecn_marks_reported += other.ecn_marks_reported;
        self.paths_down += other.paths_down;
        self.paths_up += other.paths_up;
        self.seals.add(&other.seals);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_never_happened_are_reported() {
        let mut reach = Reach::default();
        assert_eq!(reach.missing(100).len(), 6);
        let once = Stats {
            fast_retransmits: 1,
            timeout_retransmits: 1,
            spurious_retransmits: 1,
            ecn_marks_reported: 1,
            paths_down: 1,
            ..Stats::default()
        };
        reach += &once;
        assert_eq!(reach.missing(100), ["reach: in 100 cases no path came back"]);
        reach.seals.sealed = 1;
        assert_eq!((reach.missing(100).len(), reach.missing(1_000).len()), (1, 7));
    }
}
