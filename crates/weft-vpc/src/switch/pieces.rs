//! The record of a frame's arrived bytes.
//!
//! A frame is whole when each of its bytes has arrived. The number of arrived bytes alone does not show that: a peer
//! that sends some bytes twice could otherwise show the tenant the buffer's old content, or replace a head that was
//! inspected.

use weft_transport::Placement;

/// The pieces of a frame. A sender cuts it into pieces of one length, of which only the last may be shorter, and
/// sends them in packets with consecutive numbers. The transport places each packet once, so pieces whose numbers
/// and offsets agree cannot overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pieces {
    /// Length of the frame, bytes.
    len: u32,
    /// Number of its bytes that have arrived.
    placed: u32,
    /// Length of a piece that is not the last, bytes; zero until one has arrived.
    cut: u32,
    /// The packet number and offset of the piece that arrived first.
    first: (u32, u32),
}

impl Pieces {
    /// Returns the record of a frame whose first piece to arrive is `piece`, without [`add`](Self::add)ing it.
    pub(super) const fn new(piece: &Placement) -> Self {
        Self { len: piece.length, placed: 0, cut: 0, first: (piece.psn, piece.offset) }
    }

    /// Returns the frame's length with its virtio-net header, bytes.
    pub(super) const fn frame_len(&self) -> u32 {
        self.len
    }

    /// Returns `true` if every byte has arrived.
    pub(super) const fn are_whole(&self) -> bool {
        self.placed == self.len
    }

    /// Adds a piece. Returns `false`, and adds nothing, if it contradicts earlier ones.
    pub(super) fn add(&mut self, piece: &Placement) -> bool {
        let len = u32::from(piece.len);
        let (number, offset) = self.first;
        let is_last = piece.offset + len == self.len;
        let cut = match self.cut {
            0 if is_last => 0,
            0 => len,
            cut => cut,
        };
        let follows = match self.placed {
            0 => true,
            // While the length of pieces is unknown only the first piece to arrive can be the last of the
            // frame.
            _ if self.cut == 0 => cut > 0 && self.len - offset <= cut,
            _ if is_last => len <= cut,
            _ => len == cut,
        };
        let distance = piece.psn.wrapping_sub(number).cast_signed();
        let in_place =
            i64::from(piece.offset) == i64::from(offset) + i64::from(cut) * i64::from(distance);
        if piece.length != self.len || !follows || !in_place {
            return false;
        }
        self.cut = cut;
        self.placed += len;
        true
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small random numbers")]
mod tests {
    use alloc::vec::Vec;

    use weft_transport::ConnectionId;
    use weft_units::Seed;

    use super::*;

    impl Pieces {
        /// Returns the record of a frame of `len` bytes of which `placed` have arrived.
        pub(in crate::switch) const fn of(placed: u32, len: u32) -> Self {
            Self { len, placed, cut: 0, first: (0, 0) }
        }
    }

    fn piece(psn: u32, offset: u32, len: u16, length: u32) -> Placement {
        let connection = ConnectionId(1);
        Placement { connection, psn, opcode: 2, tag: 0, message: 0, offset, len, length }
    }

    /// Returns the pieces of a frame, the first in packet `psn`.
    fn cut(psn: u32, length: u32, cut: u16) -> Vec<Placement> {
        let offsets = (0..length).step_by(cut.into());
        let numbered = offsets.zip(0..);
        numbered
            .map(|(offset, index)| {
                let len = (length - offset).min(cut.into()) as u16;
                piece(psn.wrapping_add(index), offset, len, length)
            })
            .collect()
    }

    #[test]
    fn pieces_arrive_in_any_order_and_complete_the_frame_with_the_last_one() {
        for seed in 0..200 {
            let mut rng = Seed(seed).rng();
            let mut pieces = cut(
                rng.next_u64() as u32,
                1 + rng.below(5_000) as u32,
                1 + rng.below(1_500) as u16,
            );
            for index in (1..pieces.len()).rev() {
                pieces.swap(index, rng.below(index as u64 + 1) as usize);
            }
            let mut frame = Pieces::new(&pieces[0]);
            for piece in &pieces {
                assert!(!frame.are_whole(), "seed {seed}");
                assert!(frame.add(piece), "seed {seed}: {piece:?} to {frame:?}");
            }
            assert!(frame.are_whole(), "seed {seed}");
        }
    }

    /// Checks that a frame is whole only when each byte has arrived, for any pieces of a peer.
    #[test]
    fn pieces_that_overlap_are_refused() {
        let mut refused = 0;
        for seed in 0..20_000 {
            let mut rng = Seed(seed).rng();
            let length = 1 + rng.below(12) as u32;
            let (mut covered, mut frame) = (Vec::from_iter((0..length).map(|_| 0)), None);
            for psn in 0..6 {
                let offset = rng.below(length.into()) as u32;
                let len = 1 + rng.below(u64::from(length - offset)) as u16;
                let piece = piece(psn, offset, len, length);
                if frame.get_or_insert_with(|| Pieces::new(&piece)).add(&piece) {
                    covered[offset as usize..][..usize::from(len)]
                        .iter_mut()
                        .for_each(|byte| *byte += 1);
                } else {
                    refused += 1;
                }
                assert!(covered.iter().all(|&times| times <= 1), "seed {seed}: {covered:?}");
                let whole = frame.as_ref().is_some_and(Pieces::are_whole);
                assert_eq!(whole, covered.iter().all(|&times| times == 1), "seed {seed}");
                if whole {
                    break;
                }
            }
        }
        assert!(refused > 1_000, "{refused}");
    }
}
