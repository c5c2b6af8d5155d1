//! The calendar: a list of events for each window and node, in chunks.

use weft_units::{prefetch, prefetch_all};

use super::{AtNode, CHUNK, Chunk, EventQueue, NONE, turn};
use crate::time::SimTime;

/// Maximum number of chunks of a list that are prefetched, so that a switch with more does not fill the cache.
const MAX_CHUNKS: usize = 16;

impl<E: Copy + Default + AtNode> EventQueue<E> {
    /// Appends an event to the list of its node in a window.
    #[inline(always)]
    pub(super) fn append(&mut self, window: u64, at: SimTime, event: E) {
        let node = event.node();
        let list = self.list(window, node);
        let end = &mut self.ends[list];
        let mut place = *end;
        if place.is_multiple_of(CHUNK) {
            place = self.lengthen(list, window, node);
        } else {
            *end += 1;
        }
        let Chunk(events) = &mut self.chunks[(place / CHUNK) as usize];
        events[(place % CHUNK) as usize] = event.with_node(turn::low(at));
    }

    /// Returns the index in `ends` of a node's list.
    #[inline]
    pub(super) fn list(&self, window: u64, node: u32) -> usize {
        self.slot(window) * self.side_of.len() + node as usize
    }

    /// Returns the calendar's slot for a window.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "there are few windows")]
    pub(super) fn slot(&self, window: u64) -> usize {
        (window & self.window_mask) as usize
    }

    /// Appends a chunk to a list, takes the chunk's first place, and returns it.
    #[inline(never)]
    fn lengthen(&mut self, list: usize, window: u64, node: u32) -> u32 {
        let end = self.ends[list];
        if end == NONE {
            let slot = self.slot(window);
            let side = &mut self.sides[usize::from(self.side_of[node as usize])];
            side.busy[slot * self.words + node as usize / 64] |= 1 << (node % 64);
            side.occupied[slot / 64] |= 1 << (slot % 64);
        }
        let chunk = self.unused_chunk();
        self.before[chunk as usize] = end.saturating_sub(1) / CHUNK;
        self.ends[list] = chunk * CHUNK + 1;
        chunk * CHUNK
    }

    /// Returns a chunk that no list uses, allocated if none is free.
    #[inline]
    fn unused_chunk(&mut self) -> u32 {
        let chunk = self.free;
        if chunk == NONE {
            let places = u32::try_from(self.chunks.len() * CHUNK as usize);
            self.chunks.push(Chunk::default());
            self.before.push(NONE);
            return places.expect("fewer than 2^32 events to come") / CHUNK;
        }
        self.free = self.before[chunk as usize];
        chunk
    }

    /// Adds a list to the turn that begins.
    #[inline]
    pub(super) fn take_list(&mut self, window: u64, node: u32) {
        let list = self.list(window, node);
        let end = std::mem::replace(&mut self.ends[list], NONE);
        if end == NONE {
            return;
        }
        let earlier = self.turn.chunks.len();
        detach(&mut self.before, end, &mut self.turn.chunks);
        self.turn.collect(&self.chunks, earlier, end);
    }

    /// Frees the chunks of the turn that is over.
    #[inline]
    pub(super) fn release(&mut self) {
        free(&mut self.before, &mut self.free, &mut self.turn.chunks);
        self.turn.late.clear();
    }

    /// Prefetches the position of a node's current events, for [`Self::prefetch`].
    #[inline]
    pub fn prefetch_list(&self, node: u32) {
        self.current.clone().for_each(|window| prefetch(&self.ends[self.list(window, node)]));
    }

    /// Prefetches the end of the list that an event at this time will be appended to.
    #[inline]
    pub fn prefetch_end(&self, at: SimTime, event: E) {
        prefetch(&self.ends[self.list(self.window(at), event.node())]);
    }

    /// Prefetches the place of an event at this time, once [`Self::prefetch_end`] has fetched the list's end.
    #[inline]
    pub fn prefetch_place(&self, at: SimTime, event: E) {
        let end = self.ends[self.list(self.window(at), event.node())];
        // A full list ends where the next chunk of the array begins, if there is one.
        if let Some(Chunk(events)) = self.chunks.get((end / CHUNK) as usize) {
            prefetch(&events[(end % CHUNK) as usize]);
        }
    }

    /// Prefetches a node's events of the current windows.
    #[inline]
    pub fn prefetch(&self, node: u32) {
        for window in self.current.clone() {
            let end = self.ends[self.list(window, node)];
            let mut chunk = end.saturating_sub(1) / CHUNK;
            for _ in 0..MAX_CHUNKS {
                if chunk == NONE {
                    break;
                }
                prefetch_all(&self.chunks[chunk as usize]);
                chunk = self.before[chunk as usize];
            }
        }
    }

    /// Returns a node's events of the current windows, in no particular order.
    #[inline]
    pub fn of(&self, node: u32) -> impl Iterator<Item = E> + '_ {
        self.current.clone().flat_map(move |window| {
            let end = self.ends[self.list(window, node)];
            let first = end.checked_sub(1);
            let chunks = std::iter::successors(
                first.map(|last| (last / CHUNK, last % CHUNK + 1)),
                |&(chunk, _)| {
                    let before = self.before[chunk as usize];
                    (before != NONE).then_some((before, CHUNK))
                },
            );
            chunks.flat_map(move |(chunk, filled)| {
                let Chunk(events) = &self.chunks[chunk as usize];
                events[..filled as usize].iter().map(move |event| event.with_node(node))
            })
        })
    }
}

/// Appends the chunks of a list that is filled up to `end` to `chunks`, earliest first. All of `chunks` become one
/// chain, which is freed at once.
#[inline]
pub(super) fn detach(before: &mut [u32], end: u32, chunks: &mut Vec<u32>) {
    let (earlier, latest) = (chunks.len(), chunks.last().copied());
    let mut chunk = (end - 1) / CHUNK;
    while chunk != NONE {
        chunks.push(chunk);
        chunk = before[chunk as usize];
    }
    chunks[earlier..].reverse();
    before[chunks[earlier] as usize] = latest.unwrap_or(NONE);
}

/// Frees `chunks`, which are one chain.
#[inline]
pub(super) fn free(before: &mut [u32], free: &mut u32, chunks: &mut Vec<u32>) {
    if let (Some(&first), Some(&latest)) = (chunks.first(), chunks.last()) {
        before[first as usize] = std::mem::replace(free, latest);
    }
    chunks.clear();
}
