//! The contents of messages: bytes that both ends can compute.

use weft_units::Seed;

/// Number of offsets in the pattern at which messages start. Neighbouring messages differ, so a piece in the wrong
/// message or at the wrong offset is detected.
const STARTS: u32 = 509;

/// Distance between these offsets, bytes. It is odd, so that no alignment hides a shift.
const STEP: u32 = 67;

/// A pseudo-random byte sequence; each message is a window of it.
#[derive(Debug)]
pub(super) struct Pattern {
    bytes: Vec<u8>,
}

impl Pattern {
    /// Returns a pattern for messages of `message_bytes` bytes.
    pub(super) fn new(message_bytes: u32) -> Self {
        let mut rng = Seed(0x5eed).child("pattern", 0).rng();
        let len = message_bytes as usize + (STARTS * STEP) as usize;
        let words = std::iter::repeat_with(|| rng.next_u64().to_le_bytes());
        Self { bytes: words.flatten().take(len).collect() }
    }

    /// Returns `len` bytes of message `number` from `offset` on.
    #[inline]
    pub(super) fn piece(&self, number: u32, offset: u32, len: usize) -> &[u8] {
        let start = ((number % STARTS) * STEP) as usize + offset as usize;
        &self.bytes[start..start + len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_differ_from_their_neighbours_at_every_offset() {
        let pattern = Pattern::new(1024);
        for other in 1..STARTS {
            for offset in [0, 64, 960] {
                assert_ne!(pattern.piece(0, offset, 64), pattern.piece(other, offset, 64));
            }
        }
    }
}
