//! Bytes received over time, and the time that a transfer takes to recover.

use serde::Serialize;
use weft_perf::Series;

/// Number of intervals of a window in which goodput is averaged.
const WINDOW: usize = 5;
/// Length of the time before a failure whose goodput is the reference for recovery, seconds.
const REFERENCE_SECONDS: f64 = 0.5;
/// Share of its reference at which a transfer has recovered. Three paths of four carry 75 %, and a busy machine less.
const RECOVERED_SHARE: f64 = 0.6;

/// Bytes received in intervals of 10 ms, from the first arrival on.
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

    /// Returns the duration of the series, seconds.
    #[cfg(test)]
    pub(super) fn seconds(&self) -> f64 {
        self.bytes.len() as f64 * interval_seconds()
    }

    /// Returns the seconds from the first arrival to an instant of the monotonic clock.
    pub(super) fn seconds_at(&self, now_ns: u64) -> f64 {
        now_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }

    /// Returns the mean goodput between two times, which are in seconds from the first arrival; bits per second.
    pub(super) fn mean_bps(&self, from: f64, until: f64) -> f64 {
        let (first, last) = (interval_of(from), interval_of(until).max(interval_of(from) + 1));
        let bytes: u64 = (first..last).map(|interval| self.at(interval)).sum();
        8.0 * bytes as f64 / ((last - first) as f64 * interval_seconds())
    }

    /// Returns the start in seconds and the bits per second of each interval.
    pub(super) fn points(&self) -> Vec<(f64, f64)> {
        let point = |(interval, &bytes): (usize, &u64)| {
            (interval as f64 * interval_seconds(), 8.0 * bytes as f64 / interval_seconds())
        };
        self.bytes.iter().enumerate().map(point).collect()
    }

    /// Returns the mean goodput of the half second before a failure, bits per second: the reference for recovery.
    pub(super) fn before(&self, failed_at: f64) -> f64 {
        self.mean_bps((failed_at - REFERENCE_SECONDS).max(0.0), failed_at)
    }

    /// Returns the seconds from a failure until the transfer runs at 60 % of its reference or more for 50 ms; zero if
    /// it does so at once, `None` if it does not recover or carried nothing before.
    pub(super) fn back_after(&self, failed_at: f64) -> Option<f64> {
        let reference = self.before(failed_at);
        if reference == 0.0 {
            return None;
        }
        let interval_bps = |interval| 8.0 * self.at(interval) as f64 / interval_seconds();
        // A burst of queued data must not compensate for an outage.
        let clipped = |interval| interval_bps(interval).min(reference);
        let failed = interval_of(failed_at);
        let back = (failed..self.bytes.len().saturating_sub(WINDOW)).find(|&first| {
            let window = first..first + WINDOW;
            window.map(clipped).sum::<f64>() / WINDOW as f64 >= RECOVERED_SHARE * reference
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
    fn an_outage_lasts_until_a_whole_window_has_recovered() {
        let outage = intervals(&[(100, 1000), (20, 0), (1, 5000), (10, 0), (100, 750)]);
        let back = outage.back_after(1.0).unwrap();
        assert!((back - 0.31).abs() < 0.02, "{back}");
    }

    #[test]
    fn no_outage_takes_no_time_and_no_recovery_is_none() {
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
