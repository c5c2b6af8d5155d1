//! The UDP header (RFC 768). The source port is a packet's entropy: switches hash it to choose a path.

use crate::ParseError;
use crate::checksum::{Checksum, PseudoHeader};
use crate::layout::{Field, Header, split_rows, write_rows};

mod field {
    use super::Field;

    pub(super) const SOURCE_PORT: Field =
        Field::new("Source Port", 0, 16, "the packet's entropy, which selects its path");
    pub(super) const DESTINATION_PORT: Field =
        Field::new("Destination Port", 16, 16, "4789 for VXLAN; otherwise the peer's receive port");
    pub(super) const LENGTH: Field =
        Field::new("Length", 32, 16, "length of header and payload, bytes");
    pub(super) const CHECKSUM: Field = Field::new(
        "Checksum",
        48,
        16,
        "checksum of pseudo header, header and payload; zero: none was computed",
    );
}

pub(crate) const SPEC: Header = Header {
    name: "UDP",
    source: "RFC 768",
    about: "Carries VXLAN for tenants' traffic, and the transport's headers directly for RDMA and \
            messages.",
    fields: &[field::SOURCE_PORT, field::DESTINATION_PORT, field::LENGTH, field::CHECKSUM],
};

const ROWS: usize = 2;

/// The header of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct UdpHeader {
    /// Source port: the datagram's entropy.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Length of the payload in bytes, at most 65,527.
    pub payload_len: u16,
    /// The checksum on the wire; zero if none was computed.
    pub checksum: u16,
}

impl UdpHeader {
    /// Length of the header in bytes.
    pub const LEN: usize = 4 * ROWS;

    /// The IP protocol number.
    pub const PROTOCOL: u8 = 17;

    /// Splits `bytes` into header and payload; bytes past the datagram's length are ignored. The
    /// checksum is not verified: NICs and kernels verify it, and [`verify`](Self::verify) does where they
    /// have not.
    ///
    /// # Errors
    /// Returns `Truncated` if bytes of header or payload are missing, `LengthTooSmall` if the length
    /// does not cover the header.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (rows, rest) = split_rows::<ROWS>(bytes)?;
        let length = field::LENGTH.read_u16(&rows);
        let Some(payload_len) = length.checked_sub(HEADER_LEN) else {
            let got = usize::from(length);
            return Err(ParseError::LengthTooSmall { min: Self::LEN, got });
        };
        let Some(payload) = rest.get(..usize::from(payload_len)) else {
            return Err(ParseError::Truncated { needed: usize::from(length), got: bytes.len() });
        };
        let header = Self {
            source_port: field::SOURCE_PORT.read_u16(&rows),
            destination_port: field::DESTINATION_PORT.read_u16(&rows),
            payload_len,
            checksum: field::CHECKSUM.read_u16(&rows),
        };
        Ok((header, payload))
    }

    /// Writes the header over the first [`LEN`](Self::LEN) bytes of `out`.
    ///
    /// # Panics
    /// Panics if `out` is shorter, or if the payload exceeds 65,527 bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let length =
            self.payload_len.checked_add(HEADER_LEN).expect("a payload is at most 65,527 bytes");
        let mut rows = [0; ROWS];
        field::SOURCE_PORT.write(&mut rows, self.source_port);
        field::DESTINATION_PORT.write(&mut rows, self.destination_port);
        field::LENGTH.write(&mut rows, length);
        field::CHECKSUM.write(&mut rows, self.checksum);
        write_rows(out, &rows);
    }

    /// Returns the header's length in bytes.
    #[inline]
    pub const fn header_len(&self) -> usize {
        Self::LEN
    }

    /// Returns the header with the checksum of this payload. The checksum is never zero, which would mean
    /// that none was computed: a sum of zero is sent as its equivalent 0xffff.
    ///
    /// # Panics
    /// Panics if `payload` is not `payload_len` bytes.
    #[must_use]
    pub fn with_checksum(self, pseudo: PseudoHeader, payload: &[u8]) -> Self {
        let blank = Self { checksum: 0, ..self };
        let checksum = match blank.sum(pseudo, payload) {
            0 => 0xffff,
            checksum => checksum,
        };
        Self { checksum, ..self }
    }

    /// Verifies the checksum. A datagram without one is valid over IPv4 but not over IPv6 (RFC 8200,
    /// section 8.1); a tunnel that allows it over IPv6 (RFC 6935) tests `checksum == 0` itself.
    ///
    /// # Errors
    /// Returns `BadChecksum` if the checksum is wrong, or missing where it is required.
    ///
    /// # Panics
    /// Panics if `payload` is not `payload_len` bytes; [`parse`](Self::parse) returns one that is.
    pub fn verify(&self, pseudo: PseudoHeader, payload: &[u8]) -> Result<(), ParseError> {
        if self.checksum == 0 && matches!(pseudo, PseudoHeader::V4 { .. }) {
            return Ok(());
        }
        let residue = self.sum(pseudo, payload);
        if residue != 0 || self.checksum == 0 {
            return Err(ParseError::BadChecksum { residue });
        }
        Ok(())
    }

    /// Returns the checksum over pseudo header, header and payload.
    fn sum(&self, pseudo: PseudoHeader, payload: &[u8]) -> u16 {
        assert_eq!(payload.len(), usize::from(self.payload_len), "the header counts its payload");
        let mut header = [0; Self::LEN];
        self.emit(&mut header);
        let length = u32::from(self.payload_len) + u32::from(HEADER_LEN);
        Checksum::new()
            .with_pseudo_header(pseudo, Self::PROTOCOL, length)
            .with(&header)
            .with(payload)
            .finish()
    }
}

/// [`UdpHeader::LEN`] in the type of the length field.
const HEADER_LEN: u16 = 8;

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use weft_units::Seed;

    use super::*;

    const V4: PseudoHeader = PseudoHeader::V4 {
        source: Ipv4Addr::new(192, 0, 2, 1),
        destination: Ipv4Addr::new(198, 51, 100, 2),
    };
    const V6: PseudoHeader = PseudoHeader::V6 {
        source: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        destination: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
    };

    #[test]
    fn every_length_comes_back_as_it_went() {
        let mut rng = Seed(1).child("udp", 0).rng();
        let mut bytes = vec![0; 65_535];
        for payload_len in 0..=65_527 {
            let [a, b, c, d, e, f, ..] = rng.next_u64().to_be_bytes();
            let header = UdpHeader {
                source_port: u16::from_be_bytes([a, b]),
                destination_port: u16::from_be_bytes([c, d]),
                payload_len,
                checksum: u16::from_be_bytes([e, f]),
            };
            header.emit(&mut bytes);
            let (parsed, payload) = UdpHeader::parse(&bytes).unwrap();
            assert_eq!((parsed, payload.len()), (header, usize::from(payload_len)));
        }
    }

    #[test]
    fn an_impossible_length_is_refused() {
        let mut bytes = [0; 20];
        for got in 0..8 {
            bytes[5] = got;
            let got = usize::from(got);
            let too_small = ParseError::LengthTooSmall { min: 8, got };
            assert_eq!(UdpHeader::parse(&bytes), Err(too_small));
        }
        bytes[5] = 21;
        let truncated = ParseError::Truncated { needed: 21, got: 20 };
        assert_eq!(UdpHeader::parse(&bytes), Err(truncated));
    }

    #[test]
    fn any_flipped_bit_changes_the_checksum() {
        for pseudo in [V4, V6] {
            let payload = b"warp and weft";
            let header = UdpHeader { payload_len: 13, ..UdpHeader::default() };
            let header = header.with_checksum(pseudo, payload);
            assert_eq!(header.verify(pseudo, payload), Ok(()));
            for bit in 0..payload.len() * 8 {
                let mut flipped = *payload;
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(header.verify(pseudo, &flipped).is_err(), "bit {bit}");
            }
        }
    }

    #[test]
    fn a_missing_checksum_passes_over_ipv4_only() {
        let header = UdpHeader { payload_len: 2, ..UdpHeader::default() };
        assert_eq!(header.verify(V4, b"no"), Ok(()));
        assert!(header.verify(V6, b"no").is_err());
    }

    #[test]
    fn a_checksum_of_zero_is_sent_as_ffff() {
        // The payload is chosen so that the ones' complement sum is all ones.
        let plain = UdpHeader { payload_len: 2, ..UdpHeader::default() };
        let payload = plain.sum(V4, &[0, 0]).to_be_bytes();
        assert_eq!(plain.sum(V4, &payload), 0);
        let header = plain.with_checksum(V4, &payload);
        assert_eq!(header.checksum, 0xffff);
        assert_eq!(header.verify(V4, &payload), Ok(()));
    }
}
