//! The events of the node whose turn it is, put in order.

use weft_units::prefetch_all;

use super::{AtNode, CHUNK, Chunk};
use crate::time::{SimSpan, SimTime};

/// Chunks of the list that are fetched early.
const CHUNKS_AHEAD: usize = 8;
/// The rank of what is scheduled first during a turn. Ranks below are the list's, backwards: the latest
/// chunk's last place has the highest.
const FIRST_LATE: u32 = 1 << 31;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Turn<E> {
    pub(super) node: u32,
    /// When the day began.
    pub(super) dawn: SimTime,
    /// The node's list, latest first.
    pub(super) chunks: Vec<u32>,
    /// What was scheduled during the turn.
    pub(super) late: Vec<E>,
    /// Time since dawn above rank, soonest last.
    keys: Vec<u64>,
}

impl<E> Default for Turn<E> {
    fn default() -> Self {
        let (chunks, late, keys) = (Vec::new(), Vec::new(), Vec::new());
        Self { node: 0, dawn: SimTime::EPOCH, chunks, late, keys }
    }
}

impl<E: Copy + AtNode> Turn<E> {
    pub(super) fn is_over(&self) -> bool {
        self.keys.is_empty()
    }

    /// Makes keys to the events of the list's chunks, the latest of which is filled up to `end`.
    #[inline]
    pub(super) fn collect(&mut self, chunks: &[Chunk<E>], end: u32) {
        let dawn = low(self.dawn);
        let key = |(event, rank): (&E, u32)| {
            u64::from(event.node().wrapping_sub(dawn)) << 32 | u64::from(rank)
        };
        let (mut filled, mut first_rank) = ((end - 1) % CHUNK + 1, FIRST_LATE);
        for (index, &chunk) in self.chunks.iter().enumerate() {
            if let Some(&coming) = self.chunks.get(index + CHUNKS_AHEAD) {
                prefetch_all(&chunks[coming as usize]);
            }
            let Chunk(events) = &chunks[chunk as usize];
            first_rank -= CHUNK;
            self.keys.extend(events[..filled as usize].iter().zip(first_rank..).map(key));
            filled = CHUNK;
        }
    }

    /// Gives up what is due at `until` or later: it, in the order it was scheduled in.
    pub(super) fn cut_short(&mut self, until: SimTime, chunks: &[Chunk<E>]) -> Vec<(SimTime, E)> {
        let until = key(until, self.dawn, 0);
        let keys = std::mem::take(&mut self.keys);
        let (due, mut later): (Vec<_>, Vec<_>) = keys.into_iter().partition(|&key| key < until);
        self.keys = due;
        later.sort_unstable_by_key(|&key| rank(key));
        later.into_iter().map(|key| self.named(key, chunks)).collect()
    }

    /// Puts the keys in order.
    #[inline]
    pub(super) fn sort(&mut self) {
        self.keys.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// Adds to the turn while it lasts.
    pub(super) fn insert(&mut self, at: SimTime, event: E) {
        let late = u32::try_from(self.late.len()).expect("fewer than 2^31 events");
        self.late.push(event);
        let key = key(at, self.dawn, FIRST_LATE + late);
        // It is soon, so it belongs near the end.
        let sooner = self.keys.iter().rev().take_while(|&&other| other < key).count();
        self.keys.insert(self.keys.len() - sooner, key);
    }

    /// Takes out the soonest event.
    #[inline]
    pub(super) fn pop(&mut self, chunks: &[Chunk<E>]) -> Option<(SimTime, E)> {
        let key = self.keys.pop()?;
        Some(self.named(key, chunks))
    }

    /// The event that `key` names, and its time.
    #[inline]
    fn named(&self, key: u64, chunks: &[Chunk<E>]) -> (SimTime, E) {
        let rank = rank(key);
        let event = if rank < FIRST_LATE {
            let back = (FIRST_LATE - 1 - rank) / CHUNK;
            let Chunk(events) = &chunks[self.chunks[back as usize] as usize];
            events[(rank % CHUNK) as usize]
        } else {
            self.late[(rank - FIRST_LATE) as usize]
        };
        (self.dawn + SimSpan::from_picos(key >> 32), event.with_node(self.node))
    }
}

/// Orders the events of a turn by time, and those of one instant by rank.
#[inline]
fn key(at: SimTime, dawn: SimTime, rank: u32) -> u64 {
    at.since(dawn).as_picos() << 32 | u64::from(rank)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "takes a key apart")]
const fn rank(key: u64) -> u32 {
    key as u32
}

/// The lower half of a time: days are much shorter than it takes to overflow.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the upper half is the day's")]
pub(super) const fn low(at: SimTime) -> u32 {
    at.as_picos() as u32
}
