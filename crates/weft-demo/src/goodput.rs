//! Bytes that arrived over time, and the time that a transfer took to recover.

use serde::Serialize;
use weft_perf::Series;

/// Intervals of a window in which goodput is averaged.
const WINDOW: usize = 5;
/// Time before a failure whose goodput is the reference for recovery, seconds.
const BEFORE: f64 = 0.5;
/// A transfer has recovered at this share of its reference. Three paths of four carry 75 %; a busy machine takes some.
const BACK: f64 = 0.6;

/// Bytes in intervals of 10 ms, from the first arrival on.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Goodput {
    start_ns: u64,
    bytes: Vec<u64>,
}

impl Goodput {
    const INTERVAL_NS: u64 = Series::INTERVAL_NS;

    pub(super) fn of(series: &Series) -> Self {
        Self { start_ns: series.start_ns, bytes: series.bytes.clone() }
    }

    /// Adds bytes that arrived at `now_ns`, nanoseconds of the monotonic clock.
    pub(super) fn add(&mut self, now_ns: u64, bytes: u64) {
        if self.bytes.is_empty() {
            self.start_ns = now_ns - now_ns % Self::INTERVAL_NS;
        }
        let interval = usize::try_from((now_ns - self.start_ns) / Self::INTERVAL_NS)
            .expect("a demonstration lasts seconds");
        if interval >= self.bytes.len() {
            self.bytes.resize(interval + 1, 0);
        }
        self.bytes[interval] += bytes;
    }

    /// Returns its duration, seconds.
    #[cfg(test)]
    pub(super) fn seconds(&self) -> f64 {
        self.bytes.len() as f64 * interval_seconds()
    }

    /// Returns the seconds from the first arrival to an instant of the monotonic clock.
    pub(super) fn seconds_at(&self, now_ns: u64) -> f64 {
        now_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }

    /// Returns the mean between two times, bits per second.
    pub(super) fn mean_bps(&self, from: f64, until: f64) -> f64 {
        let (first, last) = (interval_of(from), interval_of(until).max(interval_of(from) + 1));
        let bytes: u64 = (first..last).map(|interval| self.at(interval)).sum();
        8.0 * bytes as f64 / ((last - first) as f64 * interval_seconds())
    }

    /// Returns time and bits per second of each interval.
    pub(super) fn points(&self) -> Vec<(f64, f64)> {
        let point = |(interval, &bytes): (usize, &u64)| {
            (interval as f64 * interval_seconds(), 8.0 * bytes as f64 / interval_seconds())
        };
        self.bytes.iter().enumerate().map(point).collect()
    }

    /// Returns the mean of the half second before a failure, bits per second: the reference for recovery.
    pub(super) fn before(&self, failed_at: f64) -> f64 {
        self.mean_bps((failed_at - BEFORE).max(0.0), failed_at)
    }

    /// Returns the seconds from a failure until the transfer ran at 60 % of its reference for 50 ms; zero when no
    /// interval is below that, `None` if it did not recover or moved nothing before.
    pub(super) fn back_after(&self, failed_at: f64) -> Option<f64> {
        let usual = self.before(failed_at);
        if usual == 0.0 {
            return None;
        }
        let interval_bps = |interval| 8.0 * self.at(interval) as f64 / interval_seconds();
        // A burst of queued data does not make up for an outage.
        let clipped = |interval| interval_bps(interval).min(usual);
        let failed = interval_of(failed_at);
        let back = (failed..self.bytes.len().saturating_sub(WINDOW)).find(|&first| {
            let window = first..first + WINDOW;
            window.map(clipped).sum::<f64>() / WINDOW as f64 >= BACK * usual
        })?;
        Some((back as f64 * interval_seconds() - failed_at).max(0.0))
    }

    fn at(&self, interval: usize) -> u64 {
        self.bytes.get(interval).copied().unwrap_or(0)
    }
}

const fn interval_seconds() -> f64 {
    Goodput::INTERVAL_NS as f64 / 1e9
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time of the demonstration, in hundredths of a second"
)]
fn interval_of(seconds: f64) -> usize {
    (seconds.max(0.0) / interval_seconds()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intervals(parts: &[(usize, u64)]) -> Goodput {
        let bytes = parts.iter().flat_map(|&(count, bytes)| vec![bytes; count]).collect();
        Goodput { start_ns: 0, bytes }
    }

    #[test]
    fn bytes_become_bits_per_second() {
        let goodput = intervals(&[(100, 1_250_000)]);
        assert_eq!(goodput.mean_bps(0.2, 0.8), 1e9);
        assert_eq!(goodput.seconds(), 1.0);
    }

    #[test]
    fn an_outage_lasts_until_the_transfer_is_back_to_stay() {
        let outage = intervals(&[(100, 1000), (20, 0), (1, 5000), (10, 0), (100, 750)]);
        let back = outage.back_after(1.0).unwrap();
        assert!((back - 0.31).abs() < 0.02, "{back}");
    }

    #[test]
    fn no_dip_is_no_time_and_no_return_is_none() {
        assert_eq!(intervals(&[(200, 1000)]).back_after(1.0), Some(0.0));
        assert_eq!(intervals(&[(100, 1000), (100, 500)]).back_after(1.0), None);
        assert_eq!(intervals(&[]).back_after(1.0), None);
    }

    #[test]
    fn arrivals_are_counted_in_their_interval() {
        let mut goodput = Goodput::default();
        for (ms, bytes) in [(1003, 5), (1009, 5), (1035, 7)] {
            goodput.add(ms * 1_000_000, bytes);
        }
        assert_eq!(
            (goodput.start_ns, goodput.bytes.as_slice()),
            (1_000_000_000, &[10, 0, 0, 7][..])
        );
    }
}
