//! The packets sent and not yet acknowledged: 16 bytes a packet (BIFROST, section 6.1.4).

use crate::path::PathId;

/// The state of a sent packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum PacketState {
    /// In flight, with no report from the peer.
    #[default]
    InFlight,
    /// Reported as missing by an ACK that covers packets sent later.
    Missing,
    /// Queued for retransmission.
    Lost,
    /// Acknowledged: the peer placed it.
    Acked,
}

/// A sent packet. Its length follows from the message's length and `offset`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SentPacket {
    /// The number of its message.
    pub(crate) message: u32,
    /// The payload's offset in the message, bytes.
    pub(crate) offset: u32,
    /// The time of its last transmission, nanoseconds modulo 2^32. No two transmissions of a connection share a
    /// timestamp, so an ACK's echo identifies one of them.
    pub(crate) sent_at: u32,
    /// The path of its last transmission.
    pub(crate) path: PathId,
    /// Number of retransmissions.
    pub(crate) retransmissions: u8,
    pub(crate) state: PacketState,
}

impl SentPacket {
    /// Returns `true` if it may still arrive.
    #[inline]
    pub(crate) fn is_in_flight(&self) -> bool {
        matches!(self.state, PacketState::InFlight | PacketState::Missing)
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
