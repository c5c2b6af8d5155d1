//! A histogram of durations in fixed buckets. It is small enough for one per connection, and two can be subtracted.

use crate::Duration;

/// A histogram of durations from 1 us to 2 s with two buckets per doubling: a quantile is at most 50 % too high.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: [u32; Self::BUCKETS],
    sum: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; Self::BUCKETS], sum: Duration::ZERO }
    }
}

impl Histogram {
    /// Number of buckets. The first one counts durations shorter than [`Self::MIN_NANOS`] nanoseconds, the last one
    /// those of about 2.1 s (2^31 ns) and longer.
    pub const BUCKETS: usize = 44;
    /// The upper end of the first bucket, in nanoseconds.
    pub const MIN_NANOS: u64 = 1 << Self::MIN_BITS;
    const MIN_BITS: u32 = 10;

    /// Adds a duration to its bucket and to the sum. Both saturate.
    #[inline]
    pub fn record(&mut self, duration: Duration) {
        let count = &mut self.counts[Self::bucket(duration)];
        *count = count.saturating_add(1);
        self.sum = self.sum + duration;
    }

    /// Returns the count of each bucket, shortest durations first.
    pub const fn counts(&self) -> &[u32; Self::BUCKETS] {
        &self.counts
    }

    /// Returns the sum of all recorded durations.
    pub const fn sum(&self) -> Duration {
        self.sum
    }

    #[inline]
    fn bucket(duration: Duration) -> usize {
        let nanos = duration.as_nanos();
        if nanos < Self::MIN_NANOS {
            return 0;
        }
        let doublings = nanos.ilog2() - Self::MIN_BITS;
        let upper_half = nanos >> (nanos.ilog2() - 1) & 1 == 1;
        (1 + 2 * doublings as usize + usize::from(upper_half)).min(Self::BUCKETS - 1)
    }

    /// Returns the exclusive upper end of a bucket; `None` for the last one, which is unbounded.
    pub const fn upper(bucket: usize) -> Option<Duration> {
        if bucket + 1 >= Self::BUCKETS {
            return None;
        }
        if bucket == 0 {
            return Some(Duration::from_nanos(Self::MIN_NANOS));
        }
        let start = Self::MIN_NANOS << ((bucket - 1) / 2);
        let whole = bucket.is_multiple_of(2);
        Some(Duration::from_nanos(if whole { 2 * start } else { start + start / 2 }))
    }

    /// Returns the upper end of the bucket that contains the quantile `per_mille`/1000 of `counts`, shortest durations
    /// first; the start of the last bucket if the quantile lies there. Returns `None` if the counts are all zero.
    pub fn quantile(counts: &[u64], per_mille: u64) -> Option<Duration> {
        let total: u64 = counts.iter().sum();
        let wanted = (total * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        let at = counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Self::upper(at).or_else(|| Self::upper(Self::BUCKETS - 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_lies_below_the_end_of_its_bucket_and_above_the_one_before() {
        for nanos in (0..40).flat_map(|bits| [1_u64 << bits, (1 << bits) + 1, (1 << bits) * 3 / 2])
        {
            let bucket = Histogram::bucket(Duration::from_nanos(nanos));
            let end = Histogram::upper(bucket).map_or(u64::MAX, Duration::as_nanos);
            let start = bucket.checked_sub(1).and_then(Histogram::upper);
            let start = start.map_or(0, Duration::as_nanos);
            assert!((start..end).contains(&nanos), "{nanos} is in {bucket}: {start} to {end}");
        }
        assert_eq!(Histogram::upper(Histogram::BUCKETS - 2).unwrap().as_nanos(), 1 << 31);
    }

    #[test]
    fn quantiles_are_at_most_50_per_cent_too_high() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|micros| histogram.record(Duration::from_micros(micros)));
        let counts = histogram.counts().map(u64::from);
        for per_mille in [10, 500, 990, 1000] {
            let got = Histogram::quantile(&counts, per_mille).unwrap();
            let want = Duration::from_micros(per_mille);
            assert!(got >= want && got <= want * 3 / 2, "{per_mille}: {got}");
        }
        assert_eq!(histogram.sum(), Duration::from_micros(500_500));
        assert_eq!(Histogram::quantile(&[0; Histogram::BUCKETS], 500), None);
    }
}
