//! The recent events of a context's channels, for external observers. Events of the data path are not recorded.

use alloc::collections::VecDeque;
use core::net::Ipv6Addr;

use weft_units::{Duration, Instant};

use crate::{Carrier, ChannelId, CloseReason};

/// A recorded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The time of the event.
    pub at: Instant,
    /// The channel and its peer; `None` for an event of the context.
    pub channel: Option<(ChannelId, Ipv6Addr)>,
    /// The event.
    pub kind: NoteKind,
}

/// The kind of a recorded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoteKind {
    /// The channel opened.
    Opened,
    /// The channel ended.
    Closed(CloseReason),
    /// The channel's frames are sent over another carrier.
    Switched(Carrier),
    /// A call took longer than `slow_threshold`.
    SlowCall(Duration),
    /// The owner did not poll for longer than `polling_warn`.
    SlowPoll(Duration),
}

/// The most recent notes, oldest first, and the total number.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    notes: VecDeque<Note>,
    total: u64,
}

impl Journal {
    /// The largest number of notes; older ones are discarded.
    pub const MAX_NOTES: usize = 64;

    /// The minimum interval of notes about slow operations of one channel. They often occur in bursts, which would
    /// displace all others.
    const SLOW_INTERVAL: Duration = Duration::from_secs(1);

    /// Records a note, unless it is a slow operation and its channel has another within [`Self::SLOW_INTERVAL`].
    pub(crate) fn note(&mut self, note: Note) {
        let is_slow =
            |kind: NoteKind| matches!(kind, NoteKind::SlowCall(_) | NoteKind::SlowPoll(_));
        let is_recent = |other: &&Note| note.at.since(other.at) < Self::SLOW_INTERVAL;
        let mut before = self.notes.iter().rev().take_while(is_recent);
        if is_slow(note.kind)
            && before.any(|other| is_slow(other.kind) && other.channel == note.channel)
        {
            return;
        }
        if self.notes.len() == Self::MAX_NOTES {
            self.notes.pop_front();
        }
        self.notes.push_back(note);
        self.total += 1;
    }

    /// Returns the most recent notes with their numbers, which count from 1, oldest first.
    pub fn last(&self) -> impl Iterator<Item = (u64, &Note)> {
        let first = self.total - self.notes.len() as u64 + 1;
        (first..).zip(&self.notes)
    }

    /// Returns the number of notes recorded since the start.
    pub const fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn the_last_notes_are_kept_with_their_numbers_and_slow_ones_do_not_push_them_out() {
        let mut journal = Journal::default();
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let opened = |millis: u64| Note { at: at(millis), channel: None, kind: NoteKind::Opened };
        let slow = |millis: u64| Note {
            at: at(millis),
            channel: None,
            kind: NoteKind::SlowPoll(Duration::from_millis(20)),
        };
        for millis in 0..2500 {
            journal.note(slow(millis));
        }
        let kept: Vec<_> = journal.last().map(|(number, note)| (number, note.at)).collect();
        assert_eq!(kept, [(1, at(0)), (2, at(1000)), (3, at(2000))]);
        for millis in 2500..2600 {
            journal.note(opened(millis));
        }
        assert_eq!(journal.total(), 103);
        let numbers: Vec<u64> = journal.last().map(|(number, _)| number).collect();
        assert_eq!((numbers.len(), numbers[0], numbers[63]), (Journal::MAX_NOTES, 40, 103));
    }
}
