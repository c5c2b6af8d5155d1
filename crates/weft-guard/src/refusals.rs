//! A record of refused peers: their number, the latest sources, and the time of the next log line. Its memory and its
//! log rate are bounded, also in a flood.

use std::collections::VecDeque;
use std::net::IpAddr;

use weft_units::{Duration, Instant};

/// A record of refused peers. It has no clock: callers pass the time of each refusal.
#[derive(Clone, Debug, Default)]
pub struct Refusals {
    total: u64,
    /// The latest sources, newest first.
    sources: VecDeque<Refused>,
    /// The time before which nothing is logged.
    next_log: Instant,
    /// Number of refusals since the last log line.
    unlogged: u64,
}

/// A source and its number of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The source address.
    pub source: IpAddr,
    /// Number of refusals while the source has been in the record.
    pub count: u64,
}

/// Maximum number of recorded sources.
const MAX_SOURCES: usize = 16;
/// Minimum time between two log lines.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

impl Refusals {
    /// Counts a refusal. If a log line is due, returns the number of refusals since the last one, including this one.
    pub fn note(&mut self, source: IpAddr, now: Instant) -> Option<u64> {
        self.total += 1;
        self.unlogged += 1;
        let known = self.sources.iter().position(|it| it.source == source);
        let count = known.and_then(|at| self.sources.remove(at)).map_or(0, |it| it.count);
        self.sources.truncate(MAX_SOURCES - 1);
        self.sources.push_front(Refused { source, count: count + 1 });
        if now < self.next_log {
            return None;
        }
        self.next_log = now + LOG_INTERVAL;
        Some(std::mem::take(&mut self.unlogged))
    }

    /// Returns the total number of refusals.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the latest sources, newest first.
    pub fn sources(&self) -> impl Iterator<Item = Refused> + '_ {
        self.sources.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_flood_is_counted_in_bounded_memory_and_logged_once_in_ten_seconds() {
        let mut refusals = Refusals::default();
        let source = |number: u32| IpAddr::from((0x0a00_0000 + number).to_be_bytes());
        let mut lines = vec![];
        for number in 0..10_000_u32 {
            // 1,000 refusals a second.
            lines.extend(refusals.note(source(number), at(100 + u64::from(number / 1000))));
        }
        lines.extend(refusals.note(source(0), at(110)));
        assert_eq!(lines, [1, 10_000]);
        assert_eq!((refusals.total(), refusals.sources().count()), (10_001, MAX_SOURCES));
        assert_eq!(refusals.sources().next(), Some(Refused { source: source(0), count: 1 }));
    }

    #[test]
    fn a_source_that_comes_again_is_one() {
        let mut refusals = Refusals::default();
        for last in [1, 2, 1, 1] {
            refusals.note([10, 0, 0, last].into(), at(1));
        }
        let counted: Vec<u64> = refusals.sources().map(|it| it.count).collect();
        assert_eq!(counted, [3, 1]);
    }
}
