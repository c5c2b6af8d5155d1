//! VXLAN header (RFC 7348, section 5), over UDP port 4789. Reserved bits are sent as zero and not
//! read, as the RFC says.

use crate::ParseError;
use crate::bits::U24;
use crate::spec::{self, Field, split_rows, write_rows};

mod field {
    use super::Field;

    pub(super) const FLAGS_BEFORE: Field = Field::new("R", 0, 4, "sent as zero, not read");
    pub(super) const I: Field = Field::new("I", 4, 1, "set: the VNI is valid");
    pub(super) const FLAGS_AFTER: Field = Field::new("R", 5, 3, "sent as zero, not read");
    pub(super) const RESERVED: Field = Field::new("Reserved", 8, 24, "sent as zero, not read");
    pub(super) const VNI: Field = Field::new("VNI", 32, 24, "the tenant's network");
    pub(super) const RESERVED_LAST: Field = Field::new("Reserved", 56, 8, "sent as zero, not read");
}

pub(crate) const SPEC: spec::Header = spec::Header {
    name: "VXLAN",
    source: "RFC 7348, section 5",
    about: "Names the tenant's network; UDP port 4789. In BIFROST the transport's headers follow, \
            then the tenant's frame.",
    fields: &[
        field::FLAGS_BEFORE,
        field::I,
        field::FLAGS_AFTER,
        field::RESERVED,
        field::VNI,
        field::RESERVED_LAST,
    ],
};

const ROWS: usize = 2;

/// A VXLAN header, in the host's own types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct VxlanHeader {
    /// The tenant's network.
    pub vni: U24,
}

impl VxlanHeader {
    /// The header's length, bytes.
    pub const LEN: usize = 4 * ROWS;

    /// The UDP destination port (IANA).
    pub const PORT: u16 = 4789;

    /// Splits `bytes` into header and what follows it.
    ///
    /// # Errors
    /// `Truncated` below [`LEN`](Self::LEN) bytes; `NoVni` without the I bit.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (rows, rest) = split_rows::<ROWS>(bytes)?;
        if !field::I.flag(&rows) {
            return Err(ParseError::NoVni { flags: bytes[0] });
        }
        Ok((Self { vni: U24::truncate(field::VNI.read(&rows)) }, rest))
    }

    /// Writes the header over the first [`LEN`](Self::LEN) bytes of `out`.
    ///
    /// # Panics
    /// If `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let mut rows = [0; ROWS];
        field::I.write(&mut rows, true);
        field::VNI.write(&mut rows, self.vni);
        write_rows(out, &rows);
    }

    /// The header's length, bytes.
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
            let header = VxlanHeader { vni: U24::truncate(vni) };
            header.emit(&mut bytes);
            assert_eq!(VxlanHeader::parse(&bytes), Ok((header, &[][..])));
        }
    }

    #[test]
    fn reserved_bits_are_not_read() {
        let bytes = [0xff, 0xff, 0xff, 0xff, 0, 0, 42, 0xff];
        let header = VxlanHeader { vni: U24::truncate(42) };
        assert_eq!(VxlanHeader::parse(&bytes), Ok((header, &[][..])));
    }

    #[test]
    fn a_header_that_names_no_network_is_refused() {
        let bytes = [0xf7, 0, 0, 0, 0, 0, 42, 0];
        assert_eq!(VxlanHeader::parse(&bytes), Err(ParseError::NoVni { flags: 0xf7 }));
        let truncated = ParseError::Truncated { needed: 8, got: 7 };
        assert_eq!(VxlanHeader::parse(&bytes[..7]), Err(truncated));
    }
}
