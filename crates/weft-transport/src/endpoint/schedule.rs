//! The queue of connections by the time at which each must be served.
//!
//! An entry stays when its connection is rescheduled to an earlier time, and is skipped when its time comes. A
//! connection that wakes for every ACK and closes after a minute of silence would leave thousands behind, so stale
//! entries are swept out when they outnumber the connections.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use weft_units::{Instant, prefetch};

use super::ids::Connections;

/// Number of entries, beyond two per connection, below which no sweep is done: the two connections of a simulated host
/// take 256 bytes.
const SWEEP_THRESHOLD: usize = 8;

/// Connections by the time at which they are served next, earliest first.
#[derive(Debug)]
pub(super) struct Schedule {
    entries: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Schedule {
    pub(super) const fn new() -> Self {
        Self { entries: BinaryHeap::new() }
    }

    /// Returns the time of the earliest entry.
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        self.entries.peek().map(|Reverse((at, _))| *at)
    }

    /// Prefetches the data that [`Self::next`] reads.
    #[inline]
    pub(super) fn prefetch_next(&self) {
        if let Some(entry) = self.entries.peek() {
            prefetch(entry);
        }
    }

    /// Inserts the time at which the connection in `slot` must be served.
    #[inline]
    pub(super) fn push(&mut self, at: Instant, slot: u32, connections: &Connections) {
        self.entries.push(Reverse((at, slot)));
        if self.entries.len() > 2 * connections.len() as usize + SWEEP_THRESHOLD {
            self.sweep(connections);
        }
    }

    /// Removes and returns an entry whose time is at or before `now`.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Instant, u32)> {
        if self.next()? > now {
            return None;
        }
        self.entries.pop().map(|Reverse(entry)| entry)
    }

    /// Removes all entries but one per connection: that of its scheduled time.
    fn sweep(&mut self, connections: &Connections) {
        let mut entries = core::mem::take(&mut self.entries).into_vec();
        entries.retain(|&Reverse((at, slot))| {
            connections.get(slot).is_some_and(|connection| connection.scheduled == at)
        });
        entries.sort_unstable();
        entries.dedup();
        self.entries = entries.into();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
