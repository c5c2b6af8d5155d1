//! The wake-ups that a job has requested for its first lane, so that a skip can execute them (`local.rs`).

use std::collections::BTreeSet;

use crate::time::{SimSpan, SimTime};

/// The wake-ups of the first lane that are yet to come, in world time: by token and time.
#[derive(Debug, Default)]
pub(super) struct LocalEvents {
    waiting: BTreeSet<(u64, SimTime)>,
}

impl LocalEvents {
    /// Remembers a wake-up.
    pub(super) fn add(&mut self, at: SimTime, token: u64) {
        self.waiting.insert((token, at));
    }

    /// Removes a wake-up that has come; returns `false` if a skip has executed it.
    pub(super) fn take(&mut self, now: SimTime, token: u64) -> bool {
        let due = self.waiting.range((token, SimTime::EPOCH)..=(token, now)).next().copied();
        due.is_some_and(|event| self.waiting.remove(&event))
    }

    /// Moves all wake-ups by `span`.
    pub(super) fn shift(&mut self, span: SimSpan) {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting = waiting.into_iter().map(|(token, at)| (token, at + span)).collect();
    }

    /// Removes all wake-ups, and returns them by time.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (SimTime, u64)> + use<> {
        std::mem::take(&mut self.waiting).into_iter().map(|(token, at)| (at, token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> SimTime {
        SimTime::from_picos(micros * 1_000_000)
    }

    #[test]
    fn a_wake_up_that_was_executed_in_a_skip_is_not_taken_again() {
        let mut events = LocalEvents::default();
        events.add(at(5), 1);
        events.add(at(9), 1);
        assert!(!events.take(at(4), 1), "it has not come");
        assert!(!events.take(at(6), 2), "another token");
        assert!(events.take(at(6), 1));
        assert!(!events.take(at(8), 1), "it was taken");
        events.shift(SimSpan::from_picos(3_000_000));
        assert!(!events.take(at(11), 1), "it has moved");
        assert_eq!(events.drain().collect::<Vec<_>>(), [(at(12), 1)]);
        assert!(!events.take(at(12), 1), "a skip has executed it");
    }
}
