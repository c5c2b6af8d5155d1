//! Per-packet metadata in chunks that connections take from one pool, so that an idle connection holds none (BIFROST,
//! section 4.4, resource pooling).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use weft_units::prefetch;

#[cfg(test)]
mod proofs;

/// The number of slots of one chunk: with 16 bytes a slot, a chunk is 256 bytes. A window holds up to two chunks that are
/// mostly unused; chunks of 64 took 2.8 KB more for each simulated host.
const CHUNK: u32 = 16;

/// The number of chunk numbers: the high bits of a sequence number select a chunk.
const CHUNK_NUMBERS: u32 = (u32::MAX / CHUNK) + 1;

/// Maximum number of free chunks kept for reuse; more are returned to the allocator.
const MAX_SPARE_CHUNKS: usize = 4096;

type Chunk<T> = Box<[T; CHUNK as usize]>;

/// The chunks that no connection holds.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    spare: Vec<Chunk<T>>,
}

impl<T: Copy + Default> Pool<T> {
    pub(crate) const fn new() -> Self {
        Self { spare: Vec::new() }
    }

    fn take(&mut self) -> Chunk<T> {
        self.spare.pop().unwrap_or_else(|| Box::new([T::default(); CHUNK as usize]))
    }

    fn give_back(&mut self, mut chunk: Chunk<T>) {
        if self.spare.len() < MAX_SPARE_CHUNKS {
            chunk.fill(T::default());
            self.spare.push(chunk);
        }
    }
}

/// The slots of consecutive packets, found by sequence number; handles the wrap of the number.
#[derive(Debug)]
pub(crate) struct Window<T> {
    /// The chunk number of the first chunk held.
    first: u32,
    chunks: VecDeque<Chunk<T>>,
}

impl<T: Copy + Default> Window<T> {
    pub(crate) const fn new() -> Self {
        Self { first: 0, chunks: VecDeque::new() }
    }

    /// Returns the position of the chunk that holds `psn`, counted from the first one held.
    #[inline]
    fn position(&self, psn: u32) -> usize {
        ((psn / CHUNK).wrapping_sub(self.first) % CHUNK_NUMBERS) as usize
    }

    /// Prefetches the address of the first chunk.
    #[inline]
    pub(crate) fn prefetch_first(&self) {
        if let Some(chunk) = self.chunks.front() {
            prefetch(chunk);
        }
    }

    /// Returns the slot of `psn`; `None` if neither it nor a later one was entered.
    #[inline]
    pub(crate) fn slot(&self, psn: u32) -> Option<&T> {
        let chunk = self.chunks.get(self.position(psn))?;
        Some(&chunk[(psn % CHUNK) as usize])
    }

    /// Returns the slot of `psn`, mutably.
    #[inline]
    pub(crate) fn slot_mut(&mut self, psn: u32) -> Option<&mut T> {
        let position = self.position(psn);
        let chunk = self.chunks.get_mut(position)?;
        Some(&mut chunk[(psn % CHUNK) as usize])
    }

    /// Returns the slot of `psn`, taking chunks from the pool up to it. `base` is the lowest number in use, where an
    /// empty window begins.
    #[inline]
    pub(crate) fn enter(&mut self, psn: u32, base: u32, pool: &mut Pool<T>) -> &mut T {
        if self.position(psn) >= self.chunks.len() {
            self.grow(psn, base, pool);
        }
        let position = self.position(psn);
        &mut self.chunks[position][(psn % CHUNK) as usize]
    }

    #[cold]
    fn grow(&mut self, psn: u32, base: u32, pool: &mut Pool<T>) {
        if self.chunks.is_empty() {
            self.first = base / CHUNK;
        }
        while self.chunks.len() <= self.position(psn) {
            self.chunks.push_back(pool.take());
        }
    }

    /// Returns to the pool the chunks whose packets all precede `base`.
    #[inline]
    pub(crate) fn release_before(&mut self, base: u32, pool: &mut Pool<T>) {
        while !self.chunks.is_empty() && self.first != base / CHUNK {
            if let Some(chunk) = self.chunks.pop_front() {
                pool.give_back(chunk);
            }
            self.first = (self.first + 1) % CHUNK_NUMBERS;
        }
    }

    /// Returns `true` if no chunk is held.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns all chunks to the pool.
    pub(crate) fn release(&mut self, pool: &mut Pool<T>) {
        self.chunks.drain(..).for_each(|chunk| pool.give_back(chunk));
        self.chunks = VecDeque::new();
    }
}

/// Returns `true` if `a` precedes `b` in the circle of 32-bit sequence numbers (RFC 1982).
#[inline]
pub(crate) const fn before(a: u32, b: u32) -> bool {
    a != b && b.wrapping_sub(a) < 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_found_across_the_wrap_of_the_sequence_number() {
        let mut pool = Pool::new();
        let mut window = Window::<u32>::new();
        let base = u32::MAX - 100;
        for step in 0..300 {
            *window.enter(base.wrapping_add(step), base, &mut pool) = step;
        }
        for step in 0..300 {
            assert_eq!(window.slot(base.wrapping_add(step)), Some(&step));
        }
        window.release_before(base.wrapping_add(250), &mut pool);
        assert_eq!(window.slot(base.wrapping_add(299)), Some(&299));
    }

    #[test]
    fn chunks_come_back_empty_and_an_idle_window_holds_none() {
        let mut pool = Pool::new();
        let mut window = Window::<u32>::new();
        for psn in 0..200 {
            *window.enter(psn, 0, &mut pool) = 7;
        }
        window.release(&mut pool);
        assert_eq!(pool.spare.len(), 13);
        assert_eq!(window.slot(3), None);
        assert_eq!(*window.enter(3, 3, &mut pool), 0);
    }

    #[test]
    fn order_holds_on_the_circle() {
        assert!(before(u32::MAX, 0));
        assert!(before(5, 6));
        assert!(!before(6, 5));
        assert!(!before(6, 6));
    }
}
