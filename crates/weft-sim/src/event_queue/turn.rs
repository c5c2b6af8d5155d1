//! The sorted events of the node being served.

use weft_units::prefetch_all;

use super::order::Order;
use super::{AtNode, CHUNK, Chunk};
use crate::time::{SimSpan, SimTime};

/// Number of chunks of the list that are prefetched.
const CHUNKS_AHEAD: usize = 8;
/// The rank of the first event scheduled during a turn. Ranks below are places in the list.
const FIRST_LATE: u32 = 1 << 31;

/// The sorted events of the node being served.
#[derive(Debug)]
pub struct Turn<E> {
    pub(super) node: u32,
    /// The start of the turn's first window.
    pub(super) start: SimTime,
    /// The node's lists, earliest first.
    pub(super) chunks: Vec<u32>,
    /// The events that were scheduled during the turn.
    pub(super) late: Vec<E>,
    /// The time since the turn's start in the upper half, the rank in the lower; in the order of scheduling until
    /// sorted, then earliest first.
    pub(super) keys: Vec<u64>,
    /// Number of keys that were taken.
    pub(super) taken: usize,
    order: Order,
}

impl<E: Copy + AtNode> Turn<E> {
    /// Returns an empty turn. No turn is longer than `max_length`.
    pub(super) fn new(max_length: SimSpan) -> Self {
        Self {
            node: 0,
            start: SimTime::EPOCH,
            chunks: Vec::new(),
            late: Vec::new(),
            keys: Vec::new(),
            taken: 0,
            order: Order::new(key(SimTime::EPOCH + max_length, SimTime::EPOCH, 0)),
        }
    }

    /// Returns a turn without events that starts with this one and is no longer than it can be.
    pub(super) fn without_events(&self) -> Self {
        Self {
            node: u32::MAX,
            start: self.start,
            chunks: Vec::new(),
            late: Vec::new(),
            keys: Vec::new(),
            taken: 0,
            order: self.order.of_same_bits(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.taken == self.keys.len()
    }

    /// Begins a node's turn, with no events yet.
    #[inline]
    pub(super) fn start(&mut self, node: u32) {
        self.node = node;
        self.keys.clear();
        self.taken = 0;
    }

    /// Makes keys to the events of a list, whose chunks are those from `first` on; the latest of them is filled up to
    /// `end`.
    #[inline]
    pub(super) fn collect(&mut self, chunks: &[Chunk<E>], first: usize, end: u32) {
        let start = low(self.start);
        let key = |(event, rank): (&E, u32)| {
            u64::from(event.node().wrapping_sub(start)) << 32 | u64::from(rank)
        };
        let mut first_rank = u32::try_from(first).expect("fewer than 2^31 events") * CHUNK;
        let (list, keys) = (&self.chunks[first..], &mut self.keys);
        for (index, &chunk) in list.iter().enumerate() {
            if let Some(&ahead) = list.get(index + CHUNKS_AHEAD) {
                prefetch_all(&chunks[ahead as usize]);
            }
            let Chunk(events) = &chunks[chunk as usize];
            let filled = if index == list.len() - 1 { (end - 1) % CHUNK + 1 } else { CHUNK };
            keys.extend(events[..filled as usize].iter().zip(first_rank..).map(key));
            first_rank += CHUNK;
        }
    }

    /// Removes the events due at `until` or later and returns them in the order of scheduling.
    pub(super) fn cut_short(&mut self, until: SimTime, chunks: &[Chunk<E>]) -> Vec<(SimTime, E)> {
        let until = key(until, self.start, 0);
        let keys = std::mem::take(&mut self.keys);
        let (due, later): (Vec<_>, Vec<_>) = keys.into_iter().partition(|&key| key < until);
        self.keys = due;
        later.into_iter().map(|key| self.named(key, chunks)).collect()
    }

    /// Sorts the keys: by time, and those of one instant by precedence.
    #[inline]
    pub(super) fn sort(&mut self, chunks: &[Chunk<E>]) {
        self.order.sort(&mut self.keys);
        if has_equal_times(&self.keys) {
            self.order_instants(chunks);
        }
    }

    /// Orders the events of each instant by precedence.
    #[cold]
    fn order_instants(&mut self, chunks: &[Chunk<E>]) {
        let mut keys = std::mem::take(&mut self.keys);
        for instant in keys.chunk_by_mut(|one, next| one >> 32 == next >> 32) {
            if instant.len() > 1 {
                instant.sort_by_cached_key(|&key| {
                    let (at, event) = self.named_before(key, chunks);
                    event.precedence(at)
                });
            }
        }
        self.keys = keys;
    }

    /// Adds an event to the turn being served.
    pub(super) fn insert(&mut self, at: SimTime, event: E) {
        let late = u32::try_from(self.late.len()).expect("fewer than 2^31 events");
        self.late.push(event);
        let key = key(at, self.start, FIRST_LATE + late);
        let sooner = self.keys[self.taken..].iter().take_while(|&&other| other < key).count();
        let Some(free) = self.taken.checked_sub(1) else { return self.keys.insert(sooner, key) };
        // The event is due soon, so few earlier keys move into the place of the last one taken.
        self.keys.copy_within(self.taken..self.taken + sooner, free);
        self.keys[free + sooner] = key;
        self.taken = free;
    }

    /// Removes the earliest event and returns it.
    #[inline]
    pub(super) fn pop(&mut self, chunks: &[Chunk<E>]) -> Option<(SimTime, E)> {
        let key = *self.keys.get(self.taken)?;
        self.taken += 1;
        Some(self.named(key, chunks))
    }

    /// Returns the event that `key` names, with its time.
    #[inline]
    fn named(&self, key: u64, chunks: &[Chunk<E>]) -> (SimTime, E) {
        if rank(key) < FIRST_LATE {
            return self.named_before(key, chunks);
        }
        let event = self.late[(rank(key) - FIRST_LATE) as usize];
        (self.time(key), event.with_node(self.node))
    }

    /// Returns the time of the event that `key` names: within the turn, so nothing overflows.
    #[inline(always)]
    fn time(&self, key: u64) -> SimTime {
        SimTime::from_picos(self.start.as_picos() + (key >> 32))
    }

    /// Returns the event of a key that was scheduled before the turn.
    #[inline(always)]
    pub(super) fn named_before(&self, key: u64, chunks: &[Chunk<E>]) -> (SimTime, E) {
        let rank = rank(key);
        let Chunk(events) = &chunks[self.chunks[(rank / CHUNK) as usize] as usize];
        let event = events[(rank % CHUNK) as usize];
        (self.time(key), event.with_node(self.node))
    }
}

/// Returns `true` if two of the sorted keys have the same time. It has no branch for each key.
#[inline]
fn has_equal_times(keys: &[u64]) -> bool {
    let pairs = keys.iter().zip(keys.iter().skip(1));
    pairs.fold(false, |found, (one, next)| found | ((one ^ next) >> 32 == 0))
}

/// Returns the key of an event. Keys sort the events of a turn by time, and those of one instant by rank.
#[inline]
fn key(at: SimTime, start: SimTime, rank: u32) -> u64 {
    at.since(start).as_picos() << 32 | u64::from(rank)
}

/// Returns the time of an event in a list of the window that begins at `start`.
#[inline]
pub(super) fn time<E: AtNode>(start: SimTime, event: E) -> SimTime {
    start + SimSpan::from_picos(event.node().wrapping_sub(low(start)).into())
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "takes a key apart")]
const fn rank(key: u64) -> u32 {
    key as u32
}

/// Returns the lower half of a time, picoseconds: a turn is shorter than 2^32 ps, so that it identifies a time in it.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the upper half is that of the turn's start")]
pub(super) const fn low(at: SimTime) -> u32 {
    at.as_picos() as u32
}
