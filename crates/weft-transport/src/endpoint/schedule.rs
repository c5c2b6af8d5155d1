//! When to look at which connection.
//!
//! An entry stays when its connection is to be looked at earlier; it is passed over when its time
//! comes. A connection that wakes for every ACK and closes after a minute of silence would leave
//! thousands behind, so they are swept out when they outnumber the connections.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use weft_units::{Instant, prefetch};

use super::ids::Connections;

/// Entries that are not worth sweeping.
const FEW: usize = 64;

/// Connections by the time of their next look, earliest first.
#[derive(Debug)]
pub(super) struct Schedule {
    entries: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Schedule {
    pub(super) const fn new() -> Self {
        Self { entries: BinaryHeap::new() }
    }

    /// When to look next, at the latest.
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        self.entries.peek().map(|Reverse((at, _))| *at)
    }

    /// Begins to fetch what [`Self::next`] reads.
    #[inline]
    pub(super) fn look_ahead(&self) {
        if let Some(entry) = self.entries.peek() {
            prefetch(entry);
        }
    }

    /// Enters the time that the connection in `slot` now has.
    #[inline]
    pub(super) fn push(&mut self, at: Instant, slot: u32, connections: &Connections) {
        self.entries.push(Reverse((at, slot)));
        if self.entries.len() > 2 * connections.len() as usize + FEW {
            self.sweep(connections);
        }
    }

    /// Takes a connection that is to be looked at by `now`.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Instant, u32)> {
        if self.next()? > now {
            return None;
        }
        self.entries.pop().map(|Reverse(entry)| entry)
    }

    /// Leaves one entry a connection: that of its time.
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
