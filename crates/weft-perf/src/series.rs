//! Bytes over time, in intervals of 10 ms.

use serde::{Deserialize, Serialize};
use weft_units::Instant;

/// Maximum number of intervals, which last ten minutes. Later bytes are only in the totals.
const MAX_INTERVALS: usize = 60_000;

/// Bytes in each interval of [`Self::INTERVAL_NS`], from `start_ns` on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// Start of the first interval, nanoseconds of the machine's monotonic clock: the series of two
    /// processes on one machine can be compared.
    pub start_ns: u64,
    /// Length of an interval, nanoseconds.
    pub interval_ns: u64,
    /// Bytes in each interval.
    pub bytes: Vec<u64>,
}

impl Series {
    /// Length of an interval, nanoseconds.
    pub const INTERVAL_NS: u64 = 10_000_000;

    /// Adds bytes that were placed at `now`. The first call sets the start of the series.
    #[inline]
    pub(super) fn add(&mut self, now: Instant, bytes: u64) {
        let nanos = now.as_nanos();
        if self.bytes.is_empty() {
            self.interval_ns = Self::INTERVAL_NS;
            self.start_ns = nanos - nanos % Self::INTERVAL_NS;
        }
        let interval = nanos.saturating_sub(self.start_ns) / Self::INTERVAL_NS;
        let Ok(interval) = usize::try_from(interval) else { return };
        if interval >= self.bytes.len() {
            if interval >= MAX_INTERVALS {
                return;
            }
            self.bytes.resize(interval + 1, 0);
        }
        self.bytes[interval] += bytes;
    }

    /// Adds another series of the same clock.
    pub(super) fn merge(&mut self, other: &Self) {
        if self.bytes.is_empty() {
            *self = other.clone();
            return;
        }
        let intervals = |ns: u64| usize::try_from(ns / Self::INTERVAL_NS).unwrap_or(MAX_INTERVALS);
        if other.start_ns < self.start_ns {
            let before = intervals(self.start_ns - other.start_ns).min(MAX_INTERVALS);
            self.bytes.splice(0..0, std::iter::repeat_n(0, before));
            self.start_ns = other.start_ns;
        }
        let first = intervals(other.start_ns - self.start_ns);
        for (interval, &bytes) in (first..MAX_INTERVALS).zip(&other.bytes) {
            if interval >= self.bytes.len() {
                self.bytes.resize(interval + 1, 0);
            }
            self.bytes[interval] += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_without_bytes_is_zero() {
        let mut series = Series::default();
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        for (ms, bytes) in [(103, 5), (109, 5), (125, 7)] {
            series.add(at(ms), bytes);
        }
        assert_eq!(series.start_ns, 100_000_000);
        assert_eq!(series.bytes, [10, 0, 7]);
    }

    #[test]
    fn series_that_overlap_add_up_interval_by_interval() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let (mut late, mut early) = (Series::default(), Series::default());
        for (ms, bytes) in [(120, 1), (130, 2)] {
            late.add(at(ms), bytes);
        }
        for (ms, bytes) in [(100, 10), (120, 20)] {
            early.add(at(ms), bytes);
        }
        late.merge(&early);
        assert_eq!(late.start_ns, 100_000_000);
        assert_eq!(late.bytes, [10, 0, 21, 2]);
    }
}
