//! The guest's buffers for received frames: taken from the ring, returned in any order.

use std::collections::VecDeque;

use super::chain::Segment;
use super::memory::Memory;
use super::ring::Ring;
use super::virtqueue::{MAX_PIECES, RingError};
use crate::HEADER_LEN;
use crate::finish::Header;
use crate::frame::{Frame, Pool};

/// Offset of `num_buffers` in the virtio header.
const NUM_BUFFERS: usize = 10;

/// Maximum number of pieces or buffers of a list that is kept for reuse, and maximum number of such lists.
const MAX_KEPT: usize = 256;
const MAX_KEPT_LISTS: usize = 256;

/// One buffer of the guest.
#[derive(Clone, Copy, Debug)]
struct Chain {
    head: u16,
    len: u32,
}

/// Buffers of the guest that together hold a frame.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// Bytes of the frame.
    pub(super) len: u32,
    chains: Vec<Chain>,
    pub(super) segments: Vec<Segment>,
}

/// The result of taking buffers.
pub(super) enum Lent {
    Buffers(Buffers),
    /// The guest offers too few buffers at present.
    Later,
    /// The guest's buffers or its ring are too small for such a frame.
    Never,
}

/// A source of the guest's buffers: it takes them from a ring, unused ones first.
#[derive(Debug, Default)]
pub(super) struct Lender {
    /// Buffers that were taken and are unused.
    spare: VecDeque<(Chain, Vec<Segment>)>,
    /// Number of pieces of all taken buffers.
    pieces: usize,
    /// Empty lists for reuse.
    lists: Vec<Buffers>,
}

impl Lender {
    /// Takes as many buffers of the guest as a frame of `len` bytes needs, or none: one, unless
    /// mergeable buffers were negotiated.
    pub(super) fn lend(
        &mut self,
        memory: &Memory,
        ring: &mut Ring,
        mergeable: bool,
        len: u32,
    ) -> Result<Lent, RingError> {
        let mut buffers = self.lists.pop().unwrap_or_default();
        buffers.len = len;
        let mut capacity = 0_u32;
        while capacity < len {
            let count = buffers.chains.len();
            let never = count > 0 && (!mergeable || count == ring.size());
            let added =
                if never { Ok(None) } else { self.add(memory, ring, &mut buffers, capacity) };
            match added {
                Ok(Some(more)) => capacity = capacity.saturating_add(more),
                Ok(None) => {
                    self.put_back(buffers);
                    return Ok(if never { Lent::Never } else { Lent::Later });
                }
                Err(error) => {
                    self.put_back(buffers);
                    return Err(error);
                }
            }
        }
        Ok(Lent::Buffers(buffers))
    }

    /// Adds a buffer of the guest to others that have `capacity` bytes. Returns its bytes, if there was
    /// one.
    fn add(
        &mut self,
        memory: &Memory,
        ring: &mut Ring,
        buffers: &mut Buffers,
        capacity: u32,
    ) -> Result<Option<u32>, RingError> {
        let start = buffers.segments.len();
        let chain = if let Some((chain, pieces)) = self.spare.pop_front() {
            buffers.segments.extend(pieces);
            chain
        } else {
            // The guest need not notify of new buffers: they are looked up when a frame needs one.
            ring.suppress_kicks(memory);
            let Some(head) = ring.next_head(memory)? else { return Ok(None) };
            let walked = ring.walk(memory, head, &mut buffers.segments).map_err(RingError::from);
            let pieces = self.pieces + buffers.segments.len() - start;
            let checked = walked.and_then(|len| match len {
                _ if len < HEADER_LEN => Err(RingError::Short { len }),
                _ if pieces > MAX_PIECES => Err(RingError::Pieces),
                _ => Ok(len),
            });
            // The other buffers are kept without the pieces of this one.
            let len = checked.inspect_err(|_| buffers.segments.truncate(start))?;
            self.pieces = pieces;
            Chain { head, len }
        };
        for piece in &mut buffers.segments[start..] {
            piece.start = piece.start.saturating_add(capacity);
        }
        buffers.chains.push(chain);
        Ok(Some(chain.len))
    }

    /// Keeps buffers for the next frame.
    pub(super) fn put_back(&mut self, mut buffers: Buffers) {
        let mut segments = buffers.segments.drain(..).peekable();
        let mut start = 0_u32;
        for chain in buffers.chains.drain(..) {
            let end = start.saturating_add(chain.len);
            let mut pieces = vec![];
            while let Some(one) = segments.next_if(|one| one.start < end) {
                pieces.push(Segment { start: one.start - start, ..one });
            }
            self.spare.push_back((chain, pieces));
            start = end;
        }
        drop(segments);
        self.recycle(buffers);
    }

    /// Keeps the lists of buffers that were returned, unless they are long.
    pub(super) fn recycle(&mut self, mut buffers: Buffers) {
        self.pieces -= buffers.segments.len();
        buffers.chains.clear();
        buffers.segments.clear();
        let capacity = buffers.segments.capacity().max(buffers.chains.capacity());
        if capacity <= MAX_KEPT && self.lists.len() < MAX_KEPT_LISTS {
            self.lists.push(buffers);
        }
    }

    /// Returns unused buffers to the guest, after all others.
    pub(super) fn return_buffers(&mut self, memory: &Memory, ring: &mut Ring) {
        self.pieces = 0;
        for (chain, _) in self.spare.drain(..) {
            ring.push_used(memory, chain.head, 0);
        }
    }
}

impl Buffers {
    /// Returns the number of the guest's buffers.
    pub(super) fn count(&self) -> usize {
        self.chains.len()
    }

    /// Copies the frame out of the guest's memory; missing bytes are zero. Returns `true` if none
    /// was missing.
    pub(super) fn fetch(&self, memory: &Memory, pool: &mut Pool) -> (Frame, bool) {
        let mut frame = pool.frame(self.len);
        let (first, rest) = frame.pieces_mut();
        let at = u32::try_from(first.len()).expect("a small buffer");
        // Evaluates both, so that both are filled.
        let read =
            (memory.gather(&self.segments, 0, first), memory.gather(&self.segments, at, rest));
        (frame, read.0.is_ok() && read.1.is_ok())
    }

    /// Delivers the frame to the guest under `header`. All buffers but the last are full
    /// (5.1.6.4.1).
    pub(super) fn give(&self, memory: &Memory, ring: &mut Ring, mut header: Header) {
        let count = u16::try_from(self.chains.len()).expect("a buffer has 12 bytes or more");
        header[NUM_BUFFERS..].copy_from_slice(&count.to_le_bytes());
        // Buffers that the guest has withdrawn meanwhile are skipped.
        let _ = memory.scatter(&self.segments, 0, &header);
        let mut left = self.len;
        for chain in &self.chains {
            let used = chain.len.min(left);
            ring.push_used(memory, chain.head, used);
            left -= used;
        }
    }

    /// Returns the buffers unwritten.
    pub(super) fn return_unwritten(&self, memory: &Memory, ring: &mut Ring) {
        self.chains.iter().for_each(|chain| ring.push_used(memory, chain.head, 0));
    }
}
