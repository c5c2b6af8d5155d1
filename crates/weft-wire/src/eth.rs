//! The Ethernet II header (IEEE 802.3, clause 3.2; the NIC handles the frame check sequence). VLAN tags
//! are not parsed: the header then has the tag's [`EtherType`].

use core::fmt;

use crate::ParseError;
use crate::layout::{Field, Header};

mod field {
    use super::Field;

    pub(super) const DESTINATION: Field =
        Field::new("Destination", 0, 48, "address of the receiving port, or a group address");
    pub(super) const SOURCE: Field = Field::new("Source", 48, 48, "address of the sending port");
    pub(super) const ETHERTYPE: Field =
        Field::new("EtherType", 96, 16, "type of the payload: 0x0800 IPv4, 0x86dd IPv6");
}

pub(crate) const SPEC: Header = Header {
    name: "Ethernet",
    source: "IEEE 802.3, clause 3.2",
    about: "The header of a tenant's frame, inside VXLAN, and of the fabric's frame around it.",
    fields: &[field::DESTINATION, field::SOURCE, field::ETHERTYPE],
};

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

/// The type of an Ethernet frame's payload, by the IEEE's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EtherType(pub u16);

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct EthernetHeader {
    /// Address of the receiving port, or a group address.
    pub destination: MacAddr,
    /// Address of the sending port.
    pub source: MacAddr,
    /// Type of the payload.
    pub ethertype: EtherType,
}

impl EthernetHeader {
    /// Length of the header in bytes.
    pub const LEN: usize = SPEC.bits() / 8;

    /// Splits `bytes` into header and payload, which may end in padding.
    ///
    /// # Errors
    /// Returns `Truncated` below [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let Some((&[d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1], payload)) =
            bytes.split_first_chunk::<{ Self::LEN }>()
        else {
            return Err(ParseError::Truncated { needed: Self::LEN, got: bytes.len() });
        };
        let header = Self {
            destination: MacAddr([d0, d1, d2, d3, d4, d5]),
            source: MacAddr([s0, s1, s2, s3, s4, s5]),
            ethertype: EtherType(u16::from_be_bytes([t0, t1])),
        };
        Ok((header, payload))
    }

    /// Writes the header over the first [`LEN`](Self::LEN) bytes of `out`.
    ///
    /// # Panics
    /// Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..Self::LEN];
        out[field::DESTINATION.bytes()].copy_from_slice(&self.destination.0);
        out[field::SOURCE.bytes()].copy_from_slice(&self.source.0);
        out[field::ETHERTYPE.bytes()].copy_from_slice(&self.ethertype.0.to_be_bytes());
    }

    /// Returns the header's length in bytes.
    #[inline]
    pub const fn header_len(&self) -> usize {
        Self::LEN
    }
}

impl MacAddr {
    /// The broadcast address.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns `true` for a group address (multicast or broadcast).
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: Self = Self(0x0800);
    /// Address resolution (RFC 826).
    pub const ARP: Self = Self(0x0806);
    /// A VLAN tag (IEEE 802.1Q), which the tagged payload's EtherType follows.
    pub const VLAN: Self = Self(0x8100);
    /// IPv6 (RFC 2464).
    pub const IPV6: Self = Self(0x86dd);
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    #[test]
    fn every_ethertype_comes_back_as_it_went() {
        let mut rng = Seed(1).child("ethernet", 0).rng();
        for ethertype in 0..=u16::MAX {
            let mut mac = || {
                let [a, b, c, d, e, f, ..] = rng.next_u64().to_be_bytes();
                MacAddr([a, b, c, d, e, f])
            };
            let header = EthernetHeader {
                destination: mac(),
                source: mac(),
                ethertype: EtherType(ethertype),
            };
            let mut bytes = [0x5a; EthernetHeader::LEN + 2];
            header.emit(&mut bytes);
            assert_eq!(EthernetHeader::parse(&bytes), Ok((header, &[0x5a; 2][..])));
        }
    }

    #[test]
    fn thirteen_bytes_are_no_frame() {
        let truncated = ParseError::Truncated { needed: 14, got: 13 };
        assert_eq!(EthernetHeader::parse(&[0; 13]), Err(truncated));
    }

    #[test]
    fn an_address_is_printed_in_hexadecimal_with_colons() {
        assert_eq!(MacAddr([2, 0, 0, 0xab, 0xcd, 9]).to_string(), "02:00:00:ab:cd:09");
        assert!(MacAddr::BROADCAST.is_group() && !MacAddr([2, 0, 0, 0, 0, 1]).is_group());
    }
}
