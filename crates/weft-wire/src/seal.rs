//! The header of an encrypted packet, in VXLAN after [`VxlanNext::Sealed`]: which key, which packet
//! under that key, and what is encrypted. As in Google's PSP Architecture Specification (section "PSP
//! Header"), by name and length, so that a nonce is SPI and IV; the fields of PSP that an overlay has no
//! use for are left out.
//!
//! All of it is authenticated, as is the VXLAN header before it.

use crate::spec::{self, Field, split_rows, write_rows};
use crate::vxlan::NEXT_PROTOCOLS;
use crate::{ParseError, VxlanNext};

mod field {
    use super::Field;

    pub(super) const NEXT: Field =
        Field::new("Next Protocol", 0, 8, "what is encrypted, by its number in VXLAN");
    pub(super) const VERSION: Field =
        Field::new("Version", 8, 8, "0 AES-GCM-128, 1 AES-GCM-256 (PSP's numbers)");
    pub(super) const RESERVED: Field = Field::new("Reserved", 16, 16, "sent as zero, not read");
    pub(super) const SPI: Field = Field::new("SPI", 32, 32, "which key");
    pub(super) const IV: Field =
        Field::new("IV", 64, 64, "number of the packet under that key, never the same twice");
}

pub(crate) const SPEC: spec::Header = spec::Header {
    name: "Seal",
    source: "after Google's PSP Architecture Specification",
    about: "Before what is encrypted; 16 bytes that authenticate both and VXLAN's header follow that.",
    fields: &[field::NEXT, field::VERSION, field::RESERVED, field::SPI, field::IV],
};

const ROWS: usize = 4;

/// The header of an encrypted packet, in the host's own types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SealHeader {
    /// What is encrypted; [`VxlanNext::Sealed`] cannot be.
    pub next: VxlanNext,
    /// The cipher.
    pub cipher: Cipher,
    /// Which key.
    pub spi: u32,
    /// Number of the packet under that key.
    pub iv: u64,
}

/// A cipher; the numbers are PSP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Cipher {
    /// AES-GCM with keys of 128 bits.
    #[default]
    Aes128Gcm,
    /// AES-GCM with keys of 256 bits.
    Aes256Gcm,
}

impl Cipher {
    /// The number on the wire.
    #[inline]
    pub const fn number(self) -> u8 {
        match self {
            Self::Aes128Gcm => 0,
            Self::Aes256Gcm => 1,
        }
    }
}

impl SealHeader {
    /// The header's length, bytes.
    pub const LEN: usize = 4 * ROWS;

    /// Length of what authenticates the packet, at its end, bytes.
    pub const TAG_LEN: usize = 16;

    /// Splits `bytes` into header and what follows it.
    ///
    /// # Errors
    /// `Truncated` below [`LEN`](Self::LEN) bytes; `UnknownCipher`; `UnknownVxlanNext` where something
    /// else than a frame or a packet of the transport is encrypted.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (rows, rest) = split_rows::<ROWS>(bytes)?;
        let got = field::NEXT.read_u8(&rows);
        let Some(next @ (VxlanNext::Frame | VxlanNext::Weft)) = VxlanNext::from_number(got) else {
            return Err(ParseError::UnknownVxlanNext { got });
        };
        let cipher = match field::VERSION.read_u8(&rows) {
            0 => Cipher::Aes128Gcm,
            1 => Cipher::Aes256Gcm,
            got => return Err(ParseError::UnknownCipher { got }),
        };
        let (spi, iv) = (field::SPI.read(&rows), field::IV.read_u64(&rows));
        Ok((Self { next, cipher, spi, iv }, rest))
    }

    /// Writes the header over the first [`LEN`](Self::LEN) bytes of `out`.
    ///
    /// # Panics
    /// If `out` is shorter, or if what is encrypted is itself [`VxlanNext::Sealed`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        assert_ne!(self.next, VxlanNext::Sealed, "nothing is encrypted twice");
        let mut rows = [0; ROWS];
        field::NEXT.write(&mut rows, self.next.number());
        field::VERSION.write(&mut rows, self.cipher.number());
        field::SPI.write(&mut rows, self.spi);
        field::IV.write_u64(&mut rows, self.iv);
        write_rows(out, &rows);
    }

    /// The header's length, bytes.
    #[inline]
    pub const fn header_len(&self) -> usize {
        Self::LEN
    }
}

impl VxlanNext {
    /// The number on the wire.
    const fn number(self) -> u8 {
        NEXT_PROTOCOLS[self as usize].value
    }

    fn from_number(number: u8) -> Option<Self> {
        [Self::Frame, Self::Weft, Self::Sealed].into_iter().find(|next| next.number() == number)
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    #[test]
    fn every_header_comes_back_as_it_went() {
        let mut rng = Seed(1).child("seal", 0).rng();
        for number in 0..=u16::MAX {
            let mut bytes = [0; SealHeader::LEN];
            bytes.fill_with(|| rng.next_u64().to_le_bytes()[7]);
            let [next, version] = number.to_be_bytes();
            (bytes[0], bytes[1], bytes[2], bytes[3]) = (next, version, 0, 0);
            let known = matches!(next, 3 | 0x7e) && version < 2;
            match SealHeader::parse(&bytes) {
                Ok((header, rest)) => {
                    let mut out = [0xa5; SealHeader::LEN];
                    header.emit(&mut out);
                    assert_eq!((known, out, rest), (true, bytes, &[][..]));
                }
                Err(ParseError::UnknownCipher { got }) => {
                    assert!(matches!(next, 3 | 0x7e) && got == version && got > 1);
                }
                Err(error) => {
                    assert_eq!(error, ParseError::UnknownVxlanNext { got: next });
                    assert!(!known);
                }
            }
        }
    }
}
