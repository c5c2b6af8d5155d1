//! What was sent and not yet acknowledged: 16 bytes a packet (BIFROST, section 6.1.4).

use crate::path::PathId;

/// What became of a packet so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Fate {
    /// Nothing is known.
    #[default]
    InFlight,
    /// The peer had not got it when it had got others that were sent later.
    Missing,
    /// It is to be sent again.
    Lost,
    /// The peer placed it.
    Acked,
}

/// A packet that was sent. Its length follows from the message's length and `offset`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SentPacket {
    /// Which message it is part of.
    pub(crate) message: u32,
    /// Where its payload begins in the message, bytes.
    pub(crate) offset: u32,
    /// When it was last sent, nanoseconds modulo 2^32. No two transmissions of a connection share
    /// a stamp, so an ACK's echo names one of them.
    pub(crate) sent_at: u32,
    /// The path it last took.
    pub(crate) path: PathId,
    /// How often it was sent again.
    pub(crate) repeats: u8,
    pub(crate) fate: Fate,
}

impl SentPacket {
    /// Whether it may still arrive.
    #[inline]
    pub(crate) fn is_in_flight(&self) -> bool {
        matches!(self.fate, Fate::InFlight | Fate::Missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_16_bytes_a_packet() {
        assert_eq!(size_of::<SentPacket>(), 16);
    }
}
