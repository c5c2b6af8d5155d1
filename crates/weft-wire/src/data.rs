//! The data packet header (BIFROST, appendix C.1, figure C2): 16 bytes.

use crate::ParseError;
use crate::bits::{U3, U4};
use crate::layout::{Field, Header, split_rows, write_rows};

mod field {
    use super::Field;

    pub(super) const PACKET_TYPE: Field = Field::new("Pkt Type", 0, 8, "1");
    pub(super) const VERSION: Field = Field::new("Version", 8, 4, "protocol version");
    pub(super) const CC_TYPE: Field =
        Field::new("CC Type", 12, 4, "congestion control in use, by its number in the registry");
    pub(super) const SE: Field =
        Field::new("se", 16, 1, "special packet (keepalive, path probe): uses no sequence number");
    pub(super) const ACK: Field = Field::new("ack", 17, 1, "requests an immediate ACK");
    pub(super) const DIR: Field =
        Field::new("dir", 18, 1, "set on packets from the side that accepted the connection");
    pub(super) const ECE: Field = Field::new(
        "ece",
        19,
        1,
        "congestion notification is on: ACKs count the marks on such packets",
    );
    pub(super) const RET: Field = Field::new("ret", 20, 1, "retransmission");
    pub(super) const PATH_ID: Field =
        Field::new("Path ID", 21, 3, "low three bits of the path's index");
    pub(super) const NEXT: Field = Field::new(
        "Reserved",
        24,
        8,
        "next header: 0 a tenant's frame, 1 a message header, 2 a message header and an RDMA header",
    );
    pub(super) const PSN: Field =
        Field::new("Packet Sequence Number", 32, 32, "sequence number, modulo 2^32");
    pub(super) const DESTINATION_CID: Field =
        Field::new("Destination CID", 64, 32, "the receiver's connection id");
    pub(super) const TIMESTAMP: Field = Field::new(
        "Timestamp Value",
        96,
        32,
        "time at which the packet left its engine (t1), ns mod 2^32",
    );
}

pub(crate) const SPEC: Header = Header {
    name: "Data packet",
    source: "BIFROST, appendix C.1, figure C2",
    about: "Payload for the peer, or a probe, which may be padded: the peer ignores all bytes after a \
            special packet's header. The byte that the paper reserves is the type of the next header; \
            zero is the paper's own format.",
    fields: &[
        field::PACKET_TYPE,
        field::VERSION,
        field::CC_TYPE,
        field::SE,
        field::ACK,
        field::DIR,
        field::ECE,
        field::RET,
        field::PATH_ID,
        field::NEXT,
        field::PSN,
        field::DESTINATION_CID,
        field::TIMESTAMP,
    ],
};

const ROWS: usize = 4;

/// The type of the header after the data header, in the byte that the paper reserves; zero is the
/// paper's own format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum NextHeader {
    /// A tenant's frame, directly after the data header (BIFROST).
    #[default]
    Frame,
    /// A [`MessageHeader`](crate::MessageHeader), then payload.
    Message,
    /// A [`MessageHeader`](crate::MessageHeader), an [`RdmaHeader`](crate::RdmaHeader), then payload.
    Rdma,
}

/// The header of a data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct DataHeader {
    /// Protocol version.
    pub version: U4,
    /// The congestion control in use, by its number in the registry.
    pub cc_type: U4,
    /// `se`: `true` for a special packet (keepalive, path probe), which uses no sequence number.
    pub special: bool,
    /// `ack`: `true` if the packet requests an immediate ACK.
    pub ack_now: bool,
    /// `dir`: `true` on packets from the side that accepted the connection.
    pub from_acceptor: bool,
    /// `ece`: `true` if explicit congestion notification is on; ACKs count the marks on such packets.
    pub ece: bool,
    /// `ret`: `true` for a retransmission.
    pub retransmitted: bool,
    /// Low three bits of the path's index.
    pub path_id: U3,
    /// The type of the next header.
    pub next: NextHeader,
    /// Packet sequence number.
    pub psn: u32,
    /// The receiver's connection id.
    pub destination_cid: u32,
    /// Time at which the packet left its engine (t1), in nanoseconds modulo 2^32.
    pub timestamp: u32,
}

impl DataHeader {
    /// Length of the header in bytes.
    pub const LEN: usize = 4 * ROWS;

    /// The packet type on the wire.
    pub const PACKET_TYPE: u8 = 1;

    /// Splits `bytes` into header and rest. Any version is accepted: the endpoint decides which
    /// versions it supports.
    ///
    /// # Errors
    /// Returns `Truncated` below [`LEN`](Self::LEN) bytes, `UnknownPacketType` unless it is a data
    /// packet, `UnknownNext` if the type of the next header is unknown.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (rows, rest) = split_rows::<ROWS>(bytes)?;
        let packet_type = field::PACKET_TYPE.read_u8(&rows);
        if packet_type != Self::PACKET_TYPE {
            return Err(ParseError::UnknownPacketType { got: packet_type });
        }
        let header = Self {
            version: U4::truncate(field::VERSION.read(&rows)),
            cc_type: U4::truncate(field::CC_TYPE.read(&rows)),
            special: field::SE.flag(&rows),
            ack_now: field::ACK.flag(&rows),
            from_acceptor: field::DIR.flag(&rows),
            ece: field::ECE.flag(&rows),
            retransmitted: field::RET.flag(&rows),
            path_id: U3::truncate(field::PATH_ID.read(&rows)),
            next: NextHeader::from_number(field::NEXT.read_u8(&rows))?,
            psn: field::PSN.read(&rows),
            destination_cid: field::DESTINATION_CID.read(&rows),
            timestamp: field::TIMESTAMP.read(&rows),
        };
        Ok((header, rest))
    }

    /// Writes the header over the first [`LEN`](Self::LEN) bytes of `out`.
    ///
    /// # Panics
    /// Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let mut rows = [0; ROWS];
        field::PACKET_TYPE.write(&mut rows, Self::PACKET_TYPE);
        field::VERSION.write(&mut rows, self.version);
        field::CC_TYPE.write(&mut rows, self.cc_type);
        field::SE.write(&mut rows, self.special);
        field::ACK.write(&mut rows, self.ack_now);
        field::DIR.write(&mut rows, self.from_acceptor);
        field::ECE.write(&mut rows, self.ece);
        field::RET.write(&mut rows, self.retransmitted);
        field::PATH_ID.write(&mut rows, self.path_id);
        field::NEXT.write(&mut rows, self.next.number());
        field::PSN.write(&mut rows, self.psn);
        field::DESTINATION_CID.write(&mut rows, self.destination_cid);
        field::TIMESTAMP.write(&mut rows, self.timestamp);
        write_rows(out, &rows);
    }

    /// Returns the header's length in bytes.
    #[inline]
    pub const fn header_len(&self) -> usize {
        Self::LEN
    }
}

impl NextHeader {
    /// Returns the number on the wire.
    #[inline]
    pub const fn number(self) -> u8 {
        match self {
            Self::Frame => 0,
            Self::Message => 1,
            Self::Rdma => 2,
        }
    }

    #[inline]
    const fn from_number(number: u8) -> Result<Self, ParseError> {
        match number {
            0 => Ok(Self::Frame),
            1 => Ok(Self::Message),
            2 => Ok(Self::Rdma),
            got => Err(ParseError::UnknownNext { got }),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use weft_units::{Rng, Seed};

    use super::*;

    impl DataHeader {
        /// Returns a header with the first row's fields from `bits` and the others at random.
        pub(crate) fn sample(bits: u32, rng: &mut Rng) -> Self {
            Self {
                version: U4::truncate(bits),
                cc_type: U4::truncate(bits >> 4),
                special: bits >> 8 & 1 != 0,
                ack_now: bits >> 9 & 1 != 0,
                from_acceptor: bits >> 10 & 1 != 0,
                ece: bits >> 11 & 1 != 0,
                retransmitted: bits >> 12 & 1 != 0,
                path_id: U3::truncate(bits >> 13),
                next: if bits >> 16 & 1 == 0 { NextHeader::Frame } else { NextHeader::Message },
                psn: rng.next_u32(),
                destination_cid: rng.next_u32(),
                timestamp: rng.next_u32(),
            }
        }
    }

    #[test]
    fn every_first_row_comes_back_as_it_went() {
        let mut rng = Seed(1).child("data header", 0).rng();
        let mut bytes = [0; DataHeader::LEN];
        for bits in 0..1 << 17 {
            let header = DataHeader::sample(bits, &mut rng);
            header.emit(&mut bytes);
            assert_eq!(DataHeader::parse(&bytes), Ok((header, &[][..])));
        }
    }

    #[test]
    fn bytes_after_the_header_are_returned() {
        let mut bytes = [0xaa; DataHeader::LEN + 3];
        DataHeader::default().emit(&mut bytes);
        let (_, rest) = DataHeader::parse(&bytes).unwrap();
        assert_eq!(rest, [0xaa; 3]);
    }

    #[test]
    fn a_short_or_foreign_header_is_refused_with_its_numbers() {
        let mut bytes = [0; DataHeader::LEN];
        DataHeader::default().emit(&mut bytes);
        for got in 0..DataHeader::LEN {
            let truncated = ParseError::Truncated { needed: 16, got };
            assert_eq!(DataHeader::parse(&bytes[..got]), Err(truncated));
        }
        bytes[3] = 3;
        assert_eq!(DataHeader::parse(&bytes), Err(ParseError::UnknownNext { got: 3 }));
        bytes[0] = 2;
        assert_eq!(DataHeader::parse(&bytes), Err(ParseError::UnknownPacketType { got: 2 }));
    }
}
