//! The VXLAN header (RFC 7348, section 5), over UDP port 4789, with the next protocol of VXLAN-GPE
//! (draft-ietf-nvo3-vxlan-gpe, section 3) if the payload is not a tenant's frame. A receiver that knows
//! only RFC 7348, such as Linux's VXLAN, then drops the packet because of the P bit instead of treating
//! it as a frame. Reserved bits are sent as zero and not read, as the RFC requires.

use crate::ParseError;
use crate::bits::U24;
use crate::layout::{Field, Header, Number, split_rows, write_rows};

mod field {
    use super::Field;

    pub(super) const FLAGS_BEFORE: Field = Field::new("R", 0, 4, "sent as zero, not read");
    pub(super) const I: Field = Field::new("I", 4, 1, "set: the VNI is valid");
    pub(super) const P: Field = Field::new("P", 5, 1, "set: Next Protocol is valid (VXLAN-GPE)");
    pub(super) const FLAGS_AFTER: Field = Field::new("R", 6, 2, "sent as zero, not read");
    pub(super) const RESERVED: Field = Field::new("Reserved", 8, 16, "sent as zero, not read");
    pub(super) const NEXT: Field =
        Field::new("Next Protocol", 24, 8, "type of the payload; zero and not read without P");
    pub(super) const VNI: Field = Field::new("VNI", 32, 24, "the tenant's network");
    pub(super) const RESERVED_LAST: Field = Field::new("Reserved", 56, 8, "sent as zero, not read");
}

pub(crate) const SPEC: Header = Header {
    name: "VXLAN",
    source: "RFC 7348, section 5; draft-ietf-nvo3-vxlan-gpe, section 3",
    about: "Names the tenant's network; UDP port 4789. A tenant's frame follows, exactly as in the \
            RFC; with the P bit, the transport's headers, then the tenant's frame (BIFROST).",
    fields: &[
        field::FLAGS_BEFORE,
        field::I,
        field::P,
        field::FLAGS_AFTER,
        field::RESERVED,
        field::NEXT,
        field::VNI,
        field::RESERVED_LAST,
    ],
};

const ROWS: usize = 2;

/// VXLAN-GPE's number of Ethernet, which VXLAN-GPE peers may use.
const ETHERNET: u8 = 3;
/// One of the two numbers that are reserved for experimentation and testing.
const WEFT: u8 = 0x7e;

/// The supported next protocols of VXLAN-GPE, in the order of [`VxlanNext`].
pub(crate) const NEXT_PROTOCOLS: &[Number] = &[
    Number {
        value: ETHERNET,
        name: "frame",
        meaning: "a tenant's frame; sent without the P bit, as in RFC 7348",
    },
    Number {
        value: WEFT,
        name: "weft",
        meaning: "a packet of the transport or a sealed packet, by its first byte",
    },
];

/// A VXLAN header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct VxlanHeader {
    /// The tenant's network.
    pub vni: U24,
    /// Type of the payload.
    pub next: VxlanNext,
}

/// The type of a VXLAN packet's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum VxlanNext {
    /// A tenant's frame, as in RFC 7348.
    #[default]
    Frame,
    /// A packet of the transport or a sealed packet, which may contain a frame.
    Weft,
}

impl VxlanHeader {
    /// Length of the header in bytes.
    pub const LEN: usize = 4 * ROWS;

    /// The UDP destination port (IANA).
    pub const PORT: u16 = 4789;

    /// Splits `bytes` into header and rest.
    ///
    /// # Errors
    /// Returns `Truncated` below [`LEN`](Self::LEN) bytes, `NoVni` without the I bit,
    /// `UnknownVxlanNext` if the P bit is set and the next protocol is not in [`VxlanNext`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (rows, rest) = split_rows::<ROWS>(bytes)?;
        if !field::I.flag(&rows) {
            return Err(ParseError::NoVni { flags: bytes[0] });
        }
        let next = match (field::P.flag(&rows), field::NEXT.read_u8(&rows)) {
            (false, _) | (true, ETHERNET) => VxlanNext::Frame,
            (true, WEFT) => VxlanNext::Weft,
            (true, got) => return Err(ParseError::UnknownVxlanNext { got }),
        };
        Ok((Self { vni: U24::truncate(field::VNI.read(&rows)), next }, rest))
    }

    /// Writes the header over the first [`LEN`](Self::LEN) bytes of `out`.
    ///
    /// # Panics
    /// Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let mut rows = [0; ROWS];
        field::I.write(&mut rows, true);
        let number = match self.next {
            VxlanNext::Frame => None,
            VxlanNext::Weft => Some(WEFT),
        };
        if let Some(number) = number {
            field::P.write(&mut rows, true);
            field::NEXT.write(&mut rows, number);
        }
        field::VNI.write(&mut rows, self.vni);
        write_rows(out, &rows);
    }

    /// Returns the header's length in bytes.
    #[inline]
    pub const fn header_len(&self) -> usize {
        Self::LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_network_comes_back_as_it_went() {
        let mut bytes = [0; VxlanHeader::LEN];
        for vni in 0..1 << 24 {
            let next = [VxlanNext::Frame, VxlanNext::Weft][vni as usize % 2];
            let header = VxlanHeader { vni: U24::truncate(vni), next };
            header.emit(&mut bytes);
            assert_eq!(VxlanHeader::parse(&bytes), Ok((header, &[][..])));
        }
    }

    #[test]
    fn a_plain_frame_has_the_header_of_rfc_7348() {
        let mut bytes = [0xff; VxlanHeader::LEN];
        VxlanHeader { vni: U24::truncate(42), next: VxlanNext::Frame }.emit(&mut bytes);
        assert_eq!(bytes, [0x08, 0, 0, 0, 0, 0, 42, 0]);
    }

    #[test]
    fn reserved_bits_are_not_read() {
        let vni = U24::truncate(42);
        let header = VxlanHeader { vni, next: VxlanNext::Frame };
        let bytes = [0xfb, 0xff, 0xff, 0xff, 0, 0, 42, 0xff];
        assert_eq!(VxlanHeader::parse(&bytes), Ok((header, &[][..])));
        let header = VxlanHeader { vni, next: VxlanNext::Weft };
        let bytes = [0xff, 0xff, 0xff, 0x7e, 0, 0, 42, 0xff];
        assert_eq!(VxlanHeader::parse(&bytes), Ok((header, &[][..])));
    }

    #[test]
    fn only_known_next_protocols_are_accepted() {
        for number in 0..=u8::MAX {
            let bytes = [0x0c, 0, 0, number, 0, 0, 42, 0];
            let next = VxlanHeader::parse(&bytes).map(|(header, _)| header.next);
            let expected = match number {
                3 => Ok(VxlanNext::Frame),
                0x7e => Ok(VxlanNext::Weft),
                got => Err(ParseError::UnknownVxlanNext { got }),
            };
            assert_eq!(next, expected);
        }
    }

    #[test]
    fn a_header_that_names_no_network_is_refused() {
        let bytes = [0xf7, 0, 0, 0, 0, 0, 42, 0];
        assert_eq!(VxlanHeader::parse(&bytes), Err(ParseError::NoVni { flags: 0xf7 }));
        let truncated = ParseError::Truncated { needed: 8, got: 7 };
        assert_eq!(VxlanHeader::parse(&bytes[..7]), Err(truncated));
    }
}
