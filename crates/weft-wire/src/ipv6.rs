//! The IPv6 header (RFC 8200, section 3). Extension headers are not parsed: `next_header` is the type of
//! the first one.

use core::net::Ipv6Addr;

use crate::bits::{U2, U6, U20};
use crate::checksum::PseudoHeader;
use crate::layout::{Field, Header, split_rows, write_rows};
use crate::{Ecn, ParseError};

mod field {
    use super::Field;

    pub(super) const VERSION: Field = Field::new("Version", 0, 4, "6");
    pub(super) const DSCP: Field =
        Field::new("DSCP", 4, 6, "forwarding class of the packet (RFC 2474)");
    pub(super) const ECN: Field = Field::new("ECN", 10, 2, "congestion notification (RFC 3168)");
    pub(super) const FLOW_LABEL: Field =
        Field::new("Flow Label", 12, 20, "a number that all packets of a flow share (RFC 6437)");
    pub(super) const PAYLOAD_LENGTH: Field =
        Field::new("Payload Length", 32, 16, "number of bytes after this header");
    pub(super) const NEXT_HEADER: Field =
        Field::new("Next Header", 48, 8, "type of the next header: 17 UDP");
    pub(super) const HOP_LIMIT: Field =
        Field::new("Hop Limit", 56, 8, "number of routers that the packet may still pass");
    pub(super) const SOURCE: Field = Field::new("Source Address", 64, 128, "address of the sender");
    pub(super) const DESTINATION: Field =
        Field::new("Destination Address", 192, 128, "address of the receiver");
}

pub(crate) const SPEC: Header = Header {
    name: "IPv6",
    source: "RFC 8200, section 3",
    about: "Extension headers are not parsed.",
    fields: &[
        field::VERSION,
        field::DSCP,
        field::ECN,
        field::FLOW_LABEL,
        field::PAYLOAD_LENGTH,
        field::NEXT_HEADER,
        field::HOP_LIMIT,
        field::SOURCE,
        field::DESTINATION,
    ],
};

const ROWS: usize = 10;
const VERSION: u8 = 6;

/// The header of an IPv6 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv6Header {
    /// Forwarding class of the packet (RFC 2474).
    pub dscp: U6,
    /// Congestion notification (RFC 3168).
    pub ecn: Ecn,
    /// A number that all packets of a flow share (RFC 6437).
    pub flow_label: U20,
    /// Number of bytes after this header.
    pub payload_len: u16,
    /// Type of the next header: a protocol or an extension header.
    pub next_header: u8,
    /// Number of routers that the packet may still pass.
    pub hop_limit: u8,
    /// Address of the sender.
    pub source: Ipv6Addr,
    /// Address of the receiver.
    pub destination: Ipv6Addr,
}

impl Ipv6Header {
    /// Length of the header in bytes.
    pub const LEN: usize = 4 * ROWS;

    /// Splits `bytes` into header and payload; bytes past the packet's length are ignored.
    ///
    /// # Errors
    /// Returns `Truncated` if bytes of header or payload are missing, `WrongIpVersion` unless it is 6.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (rows, rest) = split_rows::<ROWS>(bytes)?;
        let version = field::VERSION.read_u8(&rows);
        if version != VERSION {
            return Err(ParseError::WrongIpVersion { expected: VERSION, got: version });
        }
        let payload_len = field::PAYLOAD_LENGTH.read_u16(&rows);
        let Some(payload) = rest.get(..usize::from(payload_len)) else {
            let needed = Self::LEN + usize::from(payload_len);
            return Err(ParseError::Truncated { needed, got: bytes.len() });
        };
        let header = Self {
            dscp: U6::truncate(field::DSCP.read(&rows)),
            ecn: Ecn::from_number(U2::truncate(field::ECN.read(&rows))),
            flow_label: U20::truncate(field::FLOW_LABEL.read(&rows)),
            payload_len,
            next_header: field::NEXT_HEADER.read_u8(&rows),
            hop_limit: field::HOP_LIMIT.read_u8(&rows),
            source: Ipv6Addr::from_bits(field::SOURCE.read_u128(&rows)),
            destination: Ipv6Addr::from_bits(field::DESTINATION.read_u128(&rows)),
        };
        Ok((header, payload))
    }

    /// Writes the header over the first [`LEN`](Self::LEN) bytes of `out`.
    ///
    /// # Panics
    /// Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let mut rows = [0; ROWS];
        field::VERSION.write(&mut rows, VERSION);
        field::DSCP.write(&mut rows, self.dscp);
        field::ECN.write(&mut rows, self.ecn.number());
        field::FLOW_LABEL.write(&mut rows, self.flow_label);
        field::PAYLOAD_LENGTH.write(&mut rows, self.payload_len);
        field::NEXT_HEADER.write(&mut rows, self.next_header);
        field::HOP_LIMIT.write(&mut rows, self.hop_limit);
        field::SOURCE.write_u128(&mut rows, self.source.to_bits());
        field::DESTINATION.write_u128(&mut rows, self.destination.to_bits());
        write_rows(out, &rows);
    }

    /// Returns the header's length in bytes.
    #[inline]
    pub const fn header_len(&self) -> usize {
        Self::LEN
    }

    /// Returns the pseudo header for the checksum of a transport in this packet.
    pub const fn pseudo_header(&self) -> PseudoHeader {
        PseudoHeader::V6 { source: self.source, destination: self.destination }
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    #[test]
    fn every_first_row_comes_back_as_it_went() {
        let mut rng = Seed(1).child("ipv6", 0).rng();
        let source = Ipv6Addr::from_bits(u128::from(rng.next_u64()) << 64 | 1);
        let destination = Ipv6Addr::from_bits(u128::from(rng.next_u64()) << 64 | 2);
        let mut bytes = vec![0; Ipv6Header::LEN + 65_535];
        for low in 0u32..1 << 20 {
            let bits = rng.next_u32() & 0xfff0_0000 | low;
            let [a, b, c, d, ..] = rng.next_u64().to_be_bytes();
            let header = Ipv6Header {
                dscp: U6::truncate(bits >> 22),
                ecn: Ecn::from_number(U2::truncate(bits >> 20)),
                flow_label: U20::truncate(low),
                payload_len: u16::from_be_bytes([a, b]),
                next_header: c,
                hop_limit: d,
                source,
                destination,
            };
            header.emit(&mut bytes);
            let (parsed, payload) = Ipv6Header::parse(&bytes).unwrap();
            assert_eq!((parsed, payload.len()), (header, usize::from(header.payload_len)));
        }
    }

    #[test]
    fn another_version_or_a_truncated_packet_is_refused() {
        let mut bytes = [0; 50];
        bytes[0] = 0x45;
        let wrong = ParseError::WrongIpVersion { expected: 6, got: 4 };
        assert_eq!(Ipv6Header::parse(&bytes), Err(wrong));
        bytes[0] = 0x60;
        bytes[5] = 11;
        let truncated = ParseError::Truncated { needed: 51, got: 50 };
        assert_eq!(Ipv6Header::parse(&bytes), Err(truncated));
        let truncated = ParseError::Truncated { needed: 40, got: 39 };
        assert_eq!(Ipv6Header::parse(&bytes[..39]), Err(truncated));
    }

    #[test]
    fn padding_after_the_packet_is_ignored() {
        let mut bytes = [0; 60];
        (bytes[0], bytes[5]) = (0x60, 4);
        let (_, payload) = Ipv6Header::parse(&bytes).unwrap();
        assert_eq!(payload.len(), 4);
    }
}
