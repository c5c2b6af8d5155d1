//! The headers of one datagram of the transport as a value. The agent parses and emits bytes; the
//! simulator passes the value.

use crate::layout::Number;
use crate::{
    AckHeader, DataHeader, MessageHeader, NextHeader, ParseError, SealedHeader, SetupHeader,
    SetupKind, U4,
};

/// All packet types. The paper names the field but does not define the numbers.
pub const PACKET_TYPES: &[Number] = &[
    packet_type(DataHeader::PACKET_TYPE, "data", "payload for the peer, or a probe"),
    packet_type(AckHeader::PACKET_TYPE, "ack", "acknowledges the packets that have been placed"),
    packet_type(
        SetupKind::Request.packet_type(),
        "request",
        "requests a connection; retransmitted with the token from a challenge",
    ),
    packet_type(
        SetupKind::Challenge.packet_type(),
        "challenge",
        "carries the token that the next request must return to prove its address; the acceptor keeps no state",
    ),
    packet_type(SetupKind::Accept.packet_type(), "accept", "accepts the connection"),
    packet_type(
        SetupKind::Reject.packet_type(),
        "reject",
        "the connection is refused, for the given reason",
    ),
    packet_type(
        SetupKind::Close.packet_type(),
        "close",
        "the connection ends, for the given reason",
    ),
    packet_type(
        SetupKind::Reset.packet_type(),
        "reset",
        "the sender has no such connection: Local CID is the unknown id",
    ),
    packet_type(
        SealedHeader::PACKET_TYPE,
        "sealed",
        "an encrypted data packet, ACK or close; decrypted first, then parsed as one of those",
    ),
];

const fn packet_type(value: u8, name: &'static str, meaning: &'static str) -> Number {
    Number { value, name, meaning }
}

/// The headers of one datagram; a payload may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packet {
    /// Payload for the peer, or a probe.
    Data(DataHeader, Option<MessageHeader>),
    /// An acknowledgement of placed packets.
    Ack(AckHeader),
    /// A packet of connection management.
    Setup(SetupHeader),
}

impl Default for Packet {
    /// Returns a data packet of zeros, as a placeholder.
    fn default() -> Self {
        Self::Data(DataHeader::default(), None)
    }
}

impl Packet {
    /// Length of the longest headers of one datagram in bytes.
    pub const MAX_LEN: usize = AckHeader::MAX_LEN;

    /// Returns a data packet whose `next` field matches `message`.
    #[inline]
    pub const fn data(mut header: DataHeader, message: Option<MessageHeader>) -> Self {
        header.next = if message.is_some() { NextHeader::Message } else { NextHeader::Frame };
        Self::Data(header, message)
    }

    /// Returns the same data packet with an [`RdmaHeader`](crate::RdmaHeader) before its payload; the
    /// owner emits that header itself, after these headers.
    ///
    /// # Panics
    /// Panics if the packet carries no message.
    #[inline]
    pub const fn with_rdma(mut self) -> Self {
        self.set_rdma();
        self
    }

    /// Sets `next` to [`NextHeader::Rdma`] in place, as [`with_rdma`](Self::with_rdma) does by value.
    ///
    /// # Panics
    /// Panics if the packet carries no message.
    #[inline]
    pub const fn set_rdma(&mut self) {
        let Self::Data(header, Some(_)) = self else {
            panic!("an RDMA header follows a message header")
        };
        header.next = NextHeader::Rdma;
    }

    /// Returns `true` if an [`RdmaHeader`](crate::RdmaHeader) follows these headers.
    #[inline]
    pub const fn announces_rdma(&self) -> bool {
        matches!(self, Self::Data(DataHeader { next: NextHeader::Rdma, .. }, _))
    }

    /// Returns the version in the packet's header.
    #[inline]
    pub const fn version(&self) -> U4 {
        match self {
            Self::Data(header, _) => header.version,
            Self::Ack(header) => header.version,
            Self::Setup(header) => header.version,
        }
    }

    /// Splits a datagram into headers and payload. Any version is accepted: the endpoint decides
    /// which versions it supports.
    ///
    /// # Errors
    /// Returns `UnknownPacketType` for a sealed packet or a type that is not in [`PACKET_TYPES`], if there are at least
    /// 12 bytes; otherwise the error of the header's own parser, or `Truncated` if there are no bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        match bytes.first() {
            Some(&DataHeader::PACKET_TYPE) => {
                let (header, rest) = DataHeader::parse(bytes)?;
                match header.next {
                    NextHeader::Frame => Ok((Self::Data(header, None), rest)),
                    NextHeader::Message | NextHeader::Rdma => {
                        let (message, payload) = MessageHeader::parse(rest)
                            .map_err(|error| error.after(DataHeader::LEN))?;
                        Ok((Self::Data(header, Some(message)), payload))
                    }
                }
            }
            Some(&AckHeader::PACKET_TYPE) => {
                let (header, rest) = AckHeader::parse(bytes)?;
                Ok((Self::Ack(header), rest))
            }
            Some(_) => {
                let (header, rest) = SetupHeader::parse(bytes)?;
                Ok((Self::Setup(header), rest))
            }
            None => Err(ParseError::Truncated { needed: 1, got: 0 }),
        }
    }

    /// Writes the headers over the start of `out` and returns their length in bytes:
    /// [`len`](Self::len), at most [`MAX_LEN`](Self::MAX_LEN).
    ///
    /// # Panics
    /// Panics if `out` is shorter, or if the value is inconsistent: a data header whose `next` does
    /// not match the presence of the message header ([`Packet::data`] builds one that does), or a set-up
    /// header whose `terms` do not match its kind.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        match self {
            Self::Data(header, message) => {
                assert_eq!(
                    header.next != NextHeader::Frame,
                    message.is_some(),
                    "a data header announces a message header if and only if one follows"
                );
                header.emit(out);
                if let Some(message) = message {
                    message.emit(&mut out[DataHeader::LEN..]);
                }
            }
            Self::Ack(header) => header.emit(out),
            Self::Setup(header) => header.emit(out),
        }
        self.len()
    }

    /// Returns the length of the headers in bytes.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "headers are never empty")]
    pub const fn len(&self) -> usize {
        match self {
            Self::Data(_, None) => DataHeader::LEN,
            Self::Data(_, Some(_)) => DataHeader::LEN + MessageHeader::LEN,
            Self::Ack(header) => header.header_len(),
            Self::Setup(header) => header.header_len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    fn samples() -> impl Iterator<Item = Packet> {
        let mut rng = Seed(1).child("packet", 0).rng();
        (0..100_000).map(move |_| {
            let bits = rng.next_u32();
            match rng.below(5) {
                0 => Packet::data(DataHeader::sample(bits, &mut rng), None),
                kind @ 1..=2 => {
                    let message = MessageHeader::sample(7, &mut rng);
                    let packet = Packet::data(DataHeader::sample(bits, &mut rng), Some(message));
                    if kind == 1 { packet } else { packet.with_rdma() }
                }
                3 => Packet::Ack(AckHeader::sample(bits, &mut rng)),
                _ => {
                    let kind = SetupKind::ALL[rng.index(6)];
                    Packet::Setup(SetupHeader::sample(kind, bits, &mut rng))
                }
            }
        })
    }

    #[test]
    fn every_packet_comes_back_with_its_payload() {
        for packet in samples() {
            let mut bytes = [0x5a; Packet::MAX_LEN + 9];
            let len = packet.emit(&mut bytes);
            assert_eq!(len, packet.len());
            assert!(len <= Packet::MAX_LEN);
            assert_eq!(Packet::parse(&bytes[..len + 9]), Ok((packet, &[0x5a; 9][..])));
        }
    }

    #[test]
    fn every_truncated_packet_is_refused_as_truncated() {
        for packet in samples().take(2000) {
            let mut bytes = [0; Packet::MAX_LEN];
            let len = packet.emit(&mut bytes);
            for cut in 0..len {
                let error = Packet::parse(&bytes[..cut]).unwrap_err();
                let ParseError::Truncated { needed, got } = error else { panic!("{error}") };
                assert!(got == cut && cut < needed && needed <= len, "{cut} of {len}: {error}");
            }
        }
    }

    #[test]
    fn the_table_of_packet_types_has_exactly_the_types_of_the_parser() {
        for got in 0..=u8::MAX {
            let mut bytes = [0; 64];
            bytes[0] = got;
            let known = PACKET_TYPES.iter().any(|number| number.value == got);
            // `Packet::parse` takes sealed packets only after decryption.
            let known = known && got != SealedHeader::PACKET_TYPE;
            let unknown = Err(ParseError::UnknownPacketType { got });
            assert_eq!(known, Packet::parse(&bytes) != unknown, "type {got}");
        }
    }

    #[test]
    #[should_panic(expected = "a data header announces a message header")]
    fn a_message_that_is_not_announced_panics() {
        let packet = Packet::Data(DataHeader::default(), Some(MessageHeader::default()));
        packet.emit(&mut [0; Packet::MAX_LEN]);
    }
}
