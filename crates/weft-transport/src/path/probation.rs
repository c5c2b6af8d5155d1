//! The conditions under which a path that was down may carry packets again.
//!
//! The first time one answered probe is enough. A path that goes down again soon after its return flaps: each time it
//! is used again, packets are lost on it and later ones wait for them. So such a path must answer every probe for a
//! hold time before it returns, and for longer if it continues to flap, as flapping routes are damped (RFC 2439) and
//! links are held down in routers.
//!
//! It is not taken down sooner than others: a path that its policy does not use gets no ACKs, and one late loss would
//! take it down although it works.

use alloc::collections::BTreeMap;

use weft_units::{Duration, Instant};

use super::PathId;

/// Number of probe intervals after its return within which a path that goes down flaps.
const FLAP_INTERVALS: u64 = 1024;

/// Number of probe intervals for which a path that flapped once must answer.
const FIRST_HOLD: u64 = 16;

/// Maximum number of probe intervals for which a path must answer.
const MAX_HOLD: u64 = 32;

/// The history of a path that was down.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// The time of its last return; `None` before the first.
    returned_at: Option<Instant>,
    /// The time since which it has answered every probe, while it is down.
    answers_since: Option<Instant>,
    /// The time for which it must answer before it returns.
    hold: Duration,
    /// The time at which unanswered probes alone took it down; `None` if losses did.
    silent_at: Option<Instant>,
}

/// The paths of one connection that were down.
#[derive(Debug)]
pub(crate) struct Probation {
    records: BTreeMap<PathId, Record>,
    /// The probe interval.
    interval: Duration,
}

impl Probation {
    pub(crate) const fn new(interval: Duration) -> Self {
        Self { records: BTreeMap::new(), interval }
    }

    /// Records that the path went down.
    pub(crate) fn begin(&mut self, path: PathId, now: Instant) {
        let fresh = Record {
            returned_at: None,
            answers_since: None,
            hold: Duration::ZERO,
            silent_at: None,
        };
        let record = self.records.entry(path).or_insert(fresh);
        let flaps =
            record.returned_at.is_some_and(|at| now.since(at) < self.interval * FLAP_INTERVALS);
        record.hold = if flaps {
            (record.hold * 2).clamp(self.interval * FIRST_HOLD, self.interval * MAX_HOLD)
        } else {
            Duration::ZERO
        };
        record.answers_since = None;
        record.silent_at = None;
    }

    /// Records that unanswered probes took the path down, and no loss.
    pub(crate) fn note_silent(&mut self, path: PathId, now: Instant) {
        if let Some(record) = self.records.get_mut(&path) {
            record.silent_at = Some(now);
        }
    }

    /// Handles the answer to a probe, which left at `sent_at`, of a path that is down. Returns `true` if the path
    /// carries packets again. If only unanswered probes took it down, the answer to an earlier probe shows that it was
    /// slow and not dead: then the event does not count.
    pub(crate) fn on_answer(&mut self, path: PathId, sent_at: Instant, now: Instant) -> bool {
        let Some(record) = self.records.get_mut(&path) else { return true };
        if record.silent_at.is_some_and(|at| sent_at < at) {
            self.records.remove(&path);
            return true;
        }
        let since = *record.answers_since.get_or_insert(now);
        let returns = now.since(since) >= record.hold;
        if returns {
            record.returned_at = Some(now);
        }
        returns
    }

    /// Handles an unanswered probe.
    pub(crate) fn on_missed_probe(&mut self, path: PathId) {
        if let Some(record) = self.records.get_mut(&path) {
            record.answers_since = None;
        }
    }

    /// Returns the longest hold of any path: the time for which a working path may still have to answer.
    pub(crate) fn max_hold(&self) -> Duration {
        self.records.values().map(|record| record.hold).max().unwrap_or(Duration::ZERO)
    }

    /// Resets all paths: if every path was down, no single one is at fault.
    pub(crate) fn reset_all(&mut self) {
        self.records.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(10);
    const PATH: PathId = PathId(2);

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// Returns the time that the path must answer every interval from `from` on until it returns, milliseconds.
    fn returns_after(probation: &mut Probation, from: u64) -> u64 {
        (0..)
            .map(|probe| probe * 10)
            .find(|&past| probation.on_answer(PATH, at(from + past), at(from + past)))
            .unwrap()
    }

    #[test]
    fn a_path_that_flaps_waits_longer_and_at_most_32_intervals() {
        let mut probation = Probation::new(INTERVAL);
        let (mut now, mut waits) = (1_000, [0; 8]);
        for wait in &mut waits {
            probation.begin(PATH, at(now));
            *wait = returns_after(&mut probation, now + 100);
            now += 100 + *wait + 50;
        }
        assert_eq!(waits, [0, 160, 320, 320, 320, 320, 320, 320]);
    }

    #[test]
    fn a_path_that_held_for_a_while_begins_anew() {
        let mut probation = Probation::new(INTERVAL);
        probation.begin(PATH, at(0));
        assert_eq!(returns_after(&mut probation, 0), 0);
        probation.begin(PATH, at(10_239));
        assert_eq!(returns_after(&mut probation, 10_240), 160);
        probation.begin(PATH, at(10_400 + 10_240));
        assert_eq!(returns_after(&mut probation, 30_000), 0);
    }

    #[test]
    fn a_missed_probe_begins_the_wait_again() {
        let mut probation = Probation::new(INTERVAL);
        for _ in 0..2 {
            probation.begin(PATH, at(0));
            probation.on_answer(PATH, at(0), at(0));
        }
        assert!(!probation.on_answer(PATH, at(150), at(150)));
        probation.on_missed_probe(PATH);
        assert!(!probation.on_answer(PATH, at(170), at(170)));
        assert!(probation.on_answer(PATH, at(330), at(330)));
    }

    /// The answer takes longer than the wait for it three times; a loss counts all the same.
    #[test]
    fn a_late_answer_undoes_a_failure_by_missed_probes() {
        let mut probation = Probation::new(INTERVAL);
        for now in [100, 200, 300] {
            probation.begin(PATH, at(now));
            probation.note_silent(PATH, at(now));
            assert!(probation.on_answer(PATH, at(now - 10), at(now + 5)));
        }
        probation.begin(PATH, at(400));
        assert!(probation.on_answer(PATH, at(390), at(405)), "the first time one answer is enough");
        probation.begin(PATH, at(500));
        assert!(!probation.on_answer(PATH, at(490), at(505)), "losses took it down, soon after");
    }
}
