//! A map of calls by number. Numbers mostly grow, and calls are mostly answered in order, so a queue avoids
//! allocations and long searches.

use alloc::collections::VecDeque;

/// Values by call number.
#[derive(Clone, Debug)]
pub(crate) struct Calls<T> {
    /// Entries in order of number; `None` for a removed call before which others remain.
    queue: VecDeque<(u64, Option<T>)>,
    len: usize,
}

impl<T> Calls<T> {
    pub(crate) const fn new() -> Self {
        Self { queue: VecDeque::new(), len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Inserts a call, or replaces the call with this number.
    pub(crate) fn insert(&mut self, number: u64, value: T) {
        if self.queue.back().is_none_or(|(last, _)| *last < number) {
            self.queue.push_back((number, Some(value)));
            self.len += 1;
            return;
        }
        match self.find(number) {
            Ok(at) => self.len += usize::from(self.queue[at].1.replace(value).is_none()),
            Err(at) => {
                self.queue.insert(at, (number, Some(value)));
                self.len += 1;
            }
        }
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let at = self.find(number).ok()?;
        self.queue[at].1.as_mut()
    }

    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        let at = self.find(number).ok()?;
        self.queue[at].1.as_ref()
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        let at = self.find(number).ok()?;
        let value = self.queue[at].1.take()?;
        self.len -= 1;
        while self.queue.front().is_some_and(|(_, value)| value.is_none()) {
            self.queue.pop_front();
        }
        // A call that is never answered must not keep the entries of all later calls.
        if self.queue.len() > 2 * self.len + 64 {
            self.queue.retain(|(_, value)| value.is_some());
        }
        Some(value)
    }

    fn find(&self, number: u64) -> Result<usize, usize> {
        match self.queue.front() {
            Some((first, _)) if *first == number => Ok(0),
            _ => self.queue.binary_search_by_key(&number, |(number, _)| *number),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use weft_units::Seed;

    use super::*;

    #[test]
    fn calls_in_any_order_are_found_as_in_a_map() {
        for seed in 0..50 {
            let mut rng = Seed(seed).child("calls", 0).rng();
            let (mut calls, mut map) = (Calls::new(), BTreeMap::new());
            for next in 0..2_000_u64 {
                // Some numbers are out of order, some occur twice.
                let number = next - rng.below(next.min(20) + 1);
                if rng.chance(1, 2) {
                    calls.insert(number, next);
                    map.insert(number, next);
                } else {
                    assert_eq!(calls.remove(number), map.remove(&number), "seed {seed}");
                }
                assert_eq!(calls.get(number), map.get(&number));
                assert_eq!(calls.get_mut(number), map.get_mut(&number));
                assert_eq!(calls.len(), map.len());
            }
        }
    }

    #[test]
    fn an_unanswered_call_keeps_no_entries_of_later_calls() {
        let mut calls = Calls::new();
        calls.insert(0, ());
        for number in 1..100_000 {
            calls.insert(number, ());
            assert_eq!(calls.remove(number), Some(()));
            assert!(calls.queue.len() < 80);
        }
        assert_eq!(calls.remove(0), Some(()));
        assert!(calls.queue.is_empty());
    }
}
