//! The messages of a run: the largest, the slowest, and the number of all.

use std::collections::BTreeMap;

use crate::time::SimSpan;
use crate::traffic::FinishedFlow;

/// Number of messages kept of each kind.
const MAX_MESSAGES: usize = 100;

/// The messages that finished.
#[derive(Debug, Default)]
pub struct Messages {
    count: u64,
    largest: BTreeMap<(u64, u64), FinishedFlow>,
    slowest: BTreeMap<(u64, u64), FinishedFlow>,
}

impl Messages {
    pub(super) fn add(&mut self, message: &FinishedFlow) {
        self.count += 1;
        keep(&mut self.largest, (message.length.into(), self.count), message);
        keep(&mut self.slowest, (duration(message).as_picos(), self.count), message);
    }

    /// Returns the number of messages that finished.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the hundred longest messages, the longest first.
    pub fn largest(&self) -> impl Iterator<Item = &FinishedFlow> {
        self.largest.values().rev()
    }

    /// Returns the hundred messages that took most time, the slowest first.
    pub fn slowest(&self) -> impl Iterator<Item = &FinishedFlow> {
        self.slowest.values().rev()
    }

    /// Returns these together, each once, in order of submission.
    pub fn shown(&self) -> Vec<FinishedFlow> {
        let by_number = |map: &BTreeMap<(u64, u64), FinishedFlow>| -> Vec<(u64, FinishedFlow)> {
            map.iter().map(|((_, number), message)| (*number, *message)).collect()
        };
        let mut all: BTreeMap<u64, FinishedFlow> = by_number(&self.largest).into_iter().collect();
        all.extend(by_number(&self.slowest));
        let mut all: Vec<_> = all.into_values().collect();
        all.sort_by_key(|message| (message.submitted, message.source, message.destination));
        all
    }
}

/// Keeps the messages with the greatest keys; of equal ones the first.
fn keep(
    map: &mut BTreeMap<(u64, u64), FinishedFlow>,
    (rank, number): (u64, u64),
    message: &FinishedFlow,
) {
    let is_full = map.len() >= MAX_MESSAGES;
    if is_full && map.first_key_value().is_some_and(|((least, _), _)| rank <= *least) {
        return;
    }
    map.insert((rank, number), *message);
    if is_full {
        map.pop_first();
    }
}

/// Returns the time from submission to acknowledgement.
fn duration(message: &FinishedFlow) -> SimSpan {
    message.acknowledged.since(message.submitted)
}
