//! The calendar: a list of events for each day and node, in chunks.

use weft_units::{prefetch, prefetch_all};

use super::{AtNode, CHUNK, Chunk, EventQueue, NONE, turn};
use crate::time::SimTime;

/// Maximum number of chunks of a list that are prefetched, so that a switch with more does not fill the cache.
const MAX_CHUNKS: usize = 16;

impl<E: Copy + Default + AtNode> EventQueue<E> {
    #[inline(always)]
    pub(super) fn append(&mut self, day: u64, at: SimTime, event: E) {
        let node = event.node();
        let list = self.list(day, node);
        let end = &mut self.ends[list];
        let mut place = *end;
        if place.is_multiple_of(CHUNK) {
            place = self.lengthen(list, day, node);
        } else {
            *end += 1;
        }
        let Chunk(events) = &mut self.chunks[(place / CHUNK) as usize];
        events[(place % CHUNK) as usize] = event.with_node(turn::low(at));
    }

    #[inline]
    pub(super) fn list(&self, day: u64, node: u32) -> usize {
        self.slot(day) * self.side_of.len() + node as usize
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "there are few days")]
    pub(super) fn slot(&self, day: u64) -> usize {
        (day & self.day_mask) as usize
    }

    /// Appends a chunk to a list, takes the chunk's first place, and returns it.
    #[inline(never)]
    fn lengthen(&mut self, list: usize, day: u64, node: u32) -> u32 {
        let end = self.ends[list];
        if end == NONE {
            let slot = self.slot(day);
            let side = &mut self.sides[usize::from(self.side_of[node as usize])];
            side.busy[slot].push(node);
            side.occupied[slot / 64] |= 1 << (slot % 64);
        }
        let chunk = self.unused_chunk();
        self.before[chunk as usize] = end.saturating_sub(1) / CHUNK;
        self.ends[list] = chunk * CHUNK + 1;
        chunk * CHUNK
    }

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
    pub(super) fn take_list(&mut self, day: u64, node: u32) {
        let list = self.list(day, node);
        let end = std::mem::replace(&mut self.ends[list], NONE);
        if end == NONE {
            return;
        }
        let chunks = &mut self.turn.chunks;
        let (earlier, latest) = (chunks.len(), chunks.last().copied());
        let mut chunk = (end - 1) / CHUNK;
        while chunk != NONE {
            chunks.push(chunk);
            chunk = self.before[chunk as usize];
        }
        chunks[earlier..].reverse();
        // All chunks become one chain, which is freed at once.
        self.before[chunks[earlier] as usize] = latest.unwrap_or(NONE);
        self.turn.collect(&self.chunks, earlier, end);
    }

    /// Frees the chunks of the turn that is over.
    #[inline]
    pub(super) fn release(&mut self) {
        if let (Some(&first), Some(&latest)) = (self.turn.chunks.first(), self.turn.chunks.last()) {
            self.before[first as usize] = std::mem::replace(&mut self.free, latest);
        }
        self.turn.chunks.clear();
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
        self.today.clone().for_each(|day| prefetch(&self.ends[self.list(day, node)]));
    }

    /// Prefetches a node's events of the current windows.
    #[inline]
    pub fn prefetch(&self, node: u32) {
        for day in self.today.clone() {
            let end = self.ends[self.list(day, node)];
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
        self.today.clone().flat_map(move |day| {
            let mut end = self.ends[self.list(day, node)];
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
