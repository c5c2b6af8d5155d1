//! The receiving half of a tenant's flow, and the check that frames of a flow arrive in order and once.

use super::frame::MAX_SACKS;
use super::ranges::Ranges;

/// The position of a frame among those that its tenant received before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameOrder {
    /// It was sent after all of them.
    InOrder,
    /// A frame that was sent later arrived before it.
    Late,
    /// It was received before.
    Duplicate,
}

/// The receiving half.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    bytes: Ranges,
    /// Number of bytes of the messages that were taken.
    consumed: u64,
    frames: Ranges,
    /// One more than the largest number of a frame.
    frames_end: u64,
}

impl Receiver {
    /// Records the number of a frame and returns its position. Segments into which the network cut one frame share its
    /// number.
    pub(super) fn on_frame(&mut self, serial: u32) -> FrameOrder {
        let serial = unwrap(serial, self.frames_end);
        let is_last = serial >= self.frames_end;
        self.frames_end = self.frames_end.max(serial + 1);
        match self.frames.insert(serial, serial + 1) {
            0 => FrameOrder::Duplicate,
            _ if is_last => FrameOrder::InOrder,
            _ => FrameOrder::Late,
        }
    }

    /// Returns the number of the byte expected next.
    pub(super) const fn position(&self) -> u64 {
        self.bytes.next()
    }

    /// Records `len` bytes from `start` on; returns the number of them that are new.
    pub(super) fn on_data(&mut self, start: u64, len: u64) -> u64 {
        self.bytes.insert(start, start + len)
    }

    /// Takes `length` bytes of a message if all have arrived; returns `true` if so.
    pub(super) fn take(&mut self, length: u64) -> bool {
        let is_whole = self.consumed + length <= self.bytes.next();
        self.consumed += if is_whole { length } else { 0 };
        is_whole
    }

    /// Returns the number of the byte expected next, as a segment carries it.
    pub(super) fn acknowledged(&self) -> u32 {
        wrap(self.bytes.next())
    }

    /// Returns the SACK ranges to report, the one of the byte `recent` first.
    pub(super) fn sacks(&self, recent: u64) -> [(u32, u32); MAX_SACKS] {
        let mut sacks = [(0, 0); MAX_SACKS];
        for (place, (start, end)) in sacks.iter_mut().zip(self.bytes.early(recent)) {
            *place = (wrap(start), wrap(end));
        }
        sacks
    }
}

/// Returns the low half of a number.
#[expect(clippy::cast_possible_truncation, reason = "that is the purpose")]
pub(super) const fn wrap(number: u64) -> u32 {
    number as u32
}

/// Returns the number with this low half that is nearest to `near`.
pub(super) const fn unwrap(low: u32, near: u64) -> u64 {
    let ahead = low.wrapping_sub(wrap(near)).cast_signed();
    near.saturating_add_signed(ahead as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_past_32_bits() {
        assert_eq!(unwrap(5, 0), 5);
        assert_eq!(unwrap(5, 0xffff_fff0), 0x1_0000_0005);
        assert_eq!(unwrap(0xffff_fff0, 0x1_0000_0005), 0xffff_fff0);
    }

    #[test]
    fn late_and_duplicate_frames_are_distinguished() {
        let mut receiver = Receiver::default();
        let orders = [0, 1, 3, 2, 3, 1, 4].map(|serial| receiver.on_frame(serial));
        use FrameOrder::{Duplicate, InOrder, Late};
        assert_eq!(orders, [InOrder, InOrder, InOrder, Late, Duplicate, Duplicate, InOrder]);
    }
}
