//! Numbers that arrive in any order, each of them once.

use std::collections::BTreeMap;

/// A set of numbers: all numbers below a bound, and ranges above it.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// All numbers below this one are in the set.
    next: u64,
    /// Ranges above it that do not touch: start to end.
    early: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Returns the first number that is not in the set.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Adds `start..end`; returns the number of its elements that were new.
    pub(super) fn insert(&mut self, start: u64, end: u64) -> u64 {
        let fresh = self.missing(start, end).map(|(start, end)| end - start).sum();
        if fresh == 0 {
            return 0;
        }
        let (mut start, mut end) = (start.max(self.next), end);
        // Ranges that it meets become part of it.
        while let Some((&first, &last)) = self.early.range(..=end).next_back()
            && last >= start
        {
            self.early.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        if start <= self.next {
            self.next = self.next.max(end);
        } else {
            self.early.insert(start, end);
        }
        fresh
    }

    /// Returns the parts of `start..end` that are not in the set, in order.
    pub(super) fn missing(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = start.max(self.next);
        let before = self.early.range(..=at).next_back();
        if let Some((_, &last)) = before {
            at = at.max(last);
        }
        let mut later = self.early.range(at.min(end)..end);
        std::iter::from_fn(move || {
            while at < end {
                let (gap_end, next) =
                    later.next().map_or((end, end), |(&start, &last)| (start, last));
                let gap = (at, gap_end);
                at = next;
                if gap.0 < gap.1 {
                    return Some(gap);
                }
            }
            None
        })
    }

    /// Returns the ranges above [`next`](Self::next): first the one that holds `recent`, then the others in
    /// order, as a receiver reports them (RFC 2018, section 4).
    pub(super) fn early(&self, recent: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let range = |(&start, &end): (&u64, &u64)| (start, end);
        let first = self.early.range(..=recent).next_back().map(range);
        let first = first.filter(|&(_, end)| end > recent);
        let others = self.early.iter().map(range).filter(move |&other| Some(other) != first);
        first.into_iter().chain(others)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use weft_units::Seed;

    use super::*;

    #[test]
    fn ranges_agree_with_a_set_of_their_numbers() {
        let mut rng = Seed(1).rng();
        for _ in 0..200 {
            let (mut ranges, mut model) = (Ranges::default(), BTreeSet::new());
            for _ in 0..40 {
                let start = rng.below(60);
                let end = start + rng.below(12);
                let missing: Vec<u64> =
                    ranges.missing(start, end).flat_map(|(a, b)| a..b).collect();
                let expected = (start..end).filter(|number| !model.contains(number));
                assert_eq!(missing, expected.collect::<Vec<_>>(), "{start}..{end} of {ranges:?}");
                let before = model.len();
                model.extend(start..end);
                assert_eq!(ranges.insert(start, end), (model.len() - before) as u64);
                let next = (0..).find(|number| !model.contains(number)).unwrap();
                assert_eq!(ranges.next(), next);
                let early: BTreeSet<u64> = ranges.early(start).flat_map(|(a, b)| a..b).collect();
                assert!(early.iter().eq(model.range(next..)), "{ranges:?}");
                if let Some(first) = ranges.early(start).next()
                    && start > next
                    && end > start
                {
                    assert!(first.0 <= start && start < first.1, "{first:?} without {start}");
                }
            }
        }
    }
}
