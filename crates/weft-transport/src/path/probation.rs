//! When a path that was down may carry packets again.
//!
//! The first time one answered probe is enough. A path that goes down again soon after it came back flaps:
//! each time it is believed, packets are lost on it and what follows them waits. So such a path must have
//! answered every probe for a while before it returns, and longer if it goes on, as routes that flap are
//! suppressed (RFC 2439) and links are held down in routers.
//!
//! It is not taken down sooner than others: a path that its policy does not use hears nothing, and one late
//! loss would take it down though it is well.

use alloc::collections::BTreeMap;

use weft_units::{Duration, Instant};

use super::PathId;

/// A path that goes down within so many probe intervals of its return flaps.
const SOON: u64 = 1024;

/// Probe intervals that a path which flapped once must have answered for.
const FIRST_HOLD: u64 = 16;

/// Probe intervals that a path must have answered for at most.
const LONGEST_HOLD: u64 = 32;

/// What is remembered of a path that was down.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// When it came back last; `None` before the first time.
    returned_at: Option<Instant>,
    /// Since when it has answered every probe, while it is down.
    answers_since: Option<Instant>,
    /// How long it must have, before it returns.
    hold: Duration,
    /// When missing answers took it down, while they did and nothing else.
    silent_at: Option<Instant>,
}

/// The paths of one connection that were down.
#[derive(Debug)]
pub(crate) struct Probation {
    records: BTreeMap<PathId, Record>,
    /// Between two probes.
    interval: Duration,
}

impl Probation {
    pub(crate) const fn new(interval: Duration) -> Self {
        Self { records: BTreeMap::new(), interval }
    }

    /// The path went down.
    pub(crate) fn begin(&mut self, path: PathId, now: Instant) {
        let fresh = Record {
            returned_at: None,
            answers_since: None,
            hold: Duration::ZERO,
            silent_at: None,
        };
        let record = self.records.entry(path).or_insert(fresh);
        let flaps = record.returned_at.is_some_and(|at| now.since(at) < self.interval * SOON);
        record.hold = if flaps {
            (record.hold * 2).clamp(self.interval * FIRST_HOLD, self.interval * LONGEST_HOLD)
        } else {
            Duration::ZERO
        };
        record.answers_since = None;
        record.silent_at = None;
    }

    /// The path went down because probes were not answered in time, and for no loss.
    pub(crate) fn fell_silent(&mut self, path: PathId, now: Instant) {
        if let Some(record) = self.records.get_mut(&path) {
            record.silent_at = Some(now);
        }
    }

    /// The path, which is down, answered a probe that left at `sent_at`. Returns `true` if it carries packets again.
    /// Where silence alone took it down, the answer to an earlier probe shows that it was slow and not dead: then the
    /// silence does not count.
    pub(crate) fn answered(&mut self, path: PathId, sent_at: Instant, now: Instant) -> bool {
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

    /// A probe of the path was not answered.
    pub(crate) fn missed(&mut self, path: PathId) {
        if let Some(record) = self.records.get_mut(&path) {
            record.answers_since = None;
        }
    }

    /// How long a path that works may yet have to answer before it returns.
    pub(crate) fn longest_wait(&self) -> Duration {
        self.records.values().map(|record| record.hold).max().unwrap_or(Duration::ZERO)
    }

    /// Every path was down, which is no fault of one of them.
    pub(crate) fn forgive_all(&mut self) {
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

    /// How long the path must answer every interval from `from` on until it returns, milliseconds.
    fn returns_after(probation: &mut Probation, from: u64) -> u64 {
        (0..)
            .map(|probe| probe * 10)
            .find(|&past| probation.answered(PATH, at(from + past), at(from + past)))
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
            probation.answered(PATH, at(0), at(0));
        }
        assert!(!probation.answered(PATH, at(150), at(150)));
        probation.missed(PATH);
        assert!(!probation.answered(PATH, at(170), at(170)));
        assert!(probation.answered(PATH, at(330), at(330)));
    }

    /// Three times the answer takes longer than the wait for it; a loss counts all the same.
    #[test]
    fn a_late_answer_takes_back_what_its_silence_said() {
        let mut probation = Probation::new(INTERVAL);
        for now in [100, 200, 300] {
            probation.begin(PATH, at(now));
            probation.fell_silent(PATH, at(now));
            assert!(probation.answered(PATH, at(now - 10), at(now + 5)));
        }
        probation.begin(PATH, at(400));
        assert!(probation.answered(PATH, at(390), at(405)), "the first time one answer is enough");
        probation.begin(PATH, at(500));
        assert!(!probation.answered(PATH, at(490), at(505)), "losses took it down, soon after");
    }
}
