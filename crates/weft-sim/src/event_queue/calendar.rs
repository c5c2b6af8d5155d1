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

    /// Returns the end of the list before `chunk`.
    #[inline]
    fn end_before(&self, chunk: u32) -> u32 {
        match self.before[chunk as usize] {
            NONE => NONE,
            before => before * CHUNK + CHUNK,
        }
    }

    /// Prefetches the position of a node's current events, for [`Self::prefetch`].
    #[inline]
    pub fn prefetch_list(&self, node: u32) {
        self.current.clone().for_each(|window| prefetch(&self.ends[self.list(window, node)]));
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

    /// Returns a node's lists of the current windows, the latest scheduled event of each window first.
    #[inline]
    pub fn of(&self, node: u32) -> impl Iterator<Item = E> + '_ {
        self.current.clone().flat_map(move |window| {
            let mut end = self.ends[self.list(window, node)];
            std::iter::from_fn(move || {
                let place = end.checked_sub(1)?;
                let Chunk(events) = &self.chunks[(place / CHUNK) as usize];
                let event = events[(place % CHUNK) as usize].with_node(node);
                end = if place % CHUNK > 0 { place } else { self.end_before(place / CHUNK) };
                Some(event)
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
