//! Counts of equal numbers: percentiles in a memory that does not grow with the number of occurrences.

use std::collections::BTreeMap;

/// Number of significant bits of a counted number: it is rounded up by less than a sixteenth.
const SIGNIFICANT_BITS: u32 = 5;

/// Counts of numbers, each rounded up to five significant bits. At most about a thousand different ones remain.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    counts: BTreeMap<u64, u64>,
}

impl Counts {
    /// Counts a number.
    pub(super) fn add(&mut self, number: u64) {
        *self.counts.entry(rounded_up(number)).or_default() += 1;
    }

    /// Adds other counts.
    pub(super) fn add_all(&mut self, others: &Self) {
        for (&number, count) in &others.counts {
            *self.counts.entry(number).or_default() += count;
        }
    }

    /// Returns how many numbers were counted.
    pub(super) fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Returns the percentile by nearest rank among `total` numbers, of which those that were not counted are zero; zero if
    /// there are none.
    pub(super) fn percentile(&self, percent: u64, total: u64) -> u64 {
        let above = total - (total * percent).div_ceil(100).max(1).min(total);
        let mut seen = 0;
        let found = self.counts.iter().rev().find(|&(_, &count)| {
            seen += count;
            seen > above
        });
        found.map_or(0, |(&number, _)| number)
    }
}

/// Rounds a number up to [`SIGNIFICANT_BITS`] significant bits.
fn rounded_up(number: u64) -> u64 {
    let dropped = (u64::BITS - number.leading_zeros()).saturating_sub(SIGNIFICANT_BITS);
    let unit = 1_u64 << dropped;
    number.checked_next_multiple_of(unit).unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_at_most_a_sixteenth_too_high() {
        let mut counts = Counts::default();
        (1..=1000).for_each(|number| counts.add(number));
        assert_eq!(counts.total(), 1000);
        for (percent, exact) in [(1, 10), (50, 500), (99, 990), (100, 1000)] {
            let got = counts.percentile(percent, 1000);
            assert!((exact..=exact + exact / 16).contains(&got), "p{percent}: {got}");
        }
        assert!(counts.counts.len() < 130, "{} different numbers", counts.counts.len());
    }

    #[test]
    fn zeros_that_were_not_counted_are_lowest() {
        let mut counts = Counts::default();
        assert_eq!(counts.percentile(99, 0), 0);
        assert_eq!(counts.percentile(99, 100), 0);
        counts.add(7);
        assert_eq!((counts.percentile(99, 100), counts.percentile(100, 100)), (0, 7));
        let mut others = Counts::default();
        others.add(u64::MAX);
        counts.add_all(&others);
        assert_eq!((counts.percentile(99, 100), counts.percentile(100, 100)), (7, u64::MAX));
    }
}
