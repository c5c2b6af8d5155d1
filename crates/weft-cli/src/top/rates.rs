//! Rates: the increase of counters between two samples, over the time between them.

use std::collections::BTreeMap;

use super::sample::Source;

/// The counters of a source's objects in an earlier sample. `K` is the key of an object, `N` the number of its counters.
#[derive(Debug)]
pub(super) struct Earlier<K, const N: usize> {
    counters: BTreeMap<K, [u64; N]>,
    /// The time since the earlier sample, seconds; `None` if there is none, or if the source's clock has gone back: its
    /// host has restarted.
    seconds: Option<f64>,
}

impl<K: Ord, const N: usize> Earlier<K, N> {
    /// Returns the counters that `list` finds in the earlier answer of a source.
    pub(super) fn of<T>(
        before: Option<&Source<T>>,
        now: &Source<T>,
        list: impl FnOnce(&T) -> Vec<(K, [u64; N])>,
    ) -> Self {
        let before = before.and_then(|source| Some((source.at, source.value()?)));
        let Some((at, value)) = before.filter(|(at, _)| *at < now.at) else {
            return Self { counters: BTreeMap::new(), seconds: None };
        };
        #[expect(clippy::cast_precision_loss, reason = "a rate has no nine digits")]
        let seconds = (now.at - at) as f64 / 1e9;
        Self { counters: list(value).into_iter().collect(), seconds: Some(seconds) }
    }

    /// Returns the rates of an object's counters, per second; `None` for an object that the earlier sample has not: it
    /// may have counted for a long time.
    #[expect(clippy::cast_precision_loss, reason = "a rate has no nine digits")]
    pub(super) fn rates(&self, key: &K, now: [u64; N]) -> Option<[f64; N]> {
        let (seconds, before) = (self.seconds?, self.counters.get(key)?);
        let increases = std::array::from_fn(|index| increase(before[index], now[index]));
        Some(increases.map(|count: u64| count as f64 / seconds))
    }
}

/// Returns the increase of a counter. One that is lower than before has restarted from zero, and has counted `now` since.
pub(super) fn increase(before: u64, now: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

/// Adds rates of one object's parts; the sum of unknown ones alone is unknown.
pub(super) fn sum<const N: usize>(
    rates: impl Iterator<Item = Option<[f64; N]>>,
) -> Option<[f64; N]> {
    rates.flatten().reduce(|one, other| std::array::from_fn(|index| one[index] + other[index]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source of objects, each with its key and two counters.
    type Counted = Source<Vec<(u32, [u64; 2])>>;

    fn source(at: u64, answer: Result<Vec<(u32, [u64; 2])>, String>) -> Counted {
        Source { name: "it".into(), at, answer }
    }

    fn rates(before: Option<&Counted>, at: u64, key: u32, now: [u64; 2]) -> Option<[f64; 2]> {
        Earlier::of(before, &source(at, Ok(Vec::new())), Clone::clone).rates(&key, now)
    }

    #[test]
    fn a_rate_is_an_increase_over_the_time_between_two_samples() {
        let before = source(1_000_000_000, Ok(vec![(1, [100, 7])]));
        assert_eq!(rates(Some(&before), 3_000_000_000, 1, [300, 7]), Some([100.0, 0.0]));
    }

    #[test]
    fn a_counter_that_restarted_has_counted_from_zero() {
        let before = source(0, Ok(vec![(1, [1_000_000, 5])]));
        assert_eq!(rates(Some(&before), 2_000_000_000, 1, [40, 6]), Some([20.0, 0.5]));
    }

    #[test]
    fn a_rate_is_unknown_without_an_earlier_sample_of_the_object() {
        let before = source(5, Ok(vec![(1, [1, 1])]));
        assert_eq!(rates(None, 9, 1, [5, 5]), None, "no sample");
        assert_eq!(rates(Some(&before), 9, 2, [5, 5]), None, "an object that is new");
        assert_eq!(rates(Some(&before), 5, 1, [5, 5]), None, "the same sample");
        assert_eq!(rates(Some(&before), 4, 1, [5, 5]), None, "the host has restarted");
        let silent = source(0, Err("no daemon".into()));
        assert_eq!(rates(Some(&silent), 9, 1, [5, 5]), None, "it did not answer before");
    }

    #[test]
    fn parts_of_unknown_rate_do_not_hide_the_others() {
        assert_eq!(sum([None, Some([1.0]), Some([2.0])].into_iter()), Some([3.0]));
        assert_eq!(sum([None::<[f64; 1]>, None].into_iter()), None);
    }
}
