//! The header of an encrypted packet: its connection, its key and its number under that key. The packet ends with
//! AES-GCM's tag of 16 bytes.
//!
//! The fields are those of Google's PSP (Architecture Specification, "PSP Header"): SPI, IV, version. They have the
//! offsets of the corresponding fields of a data packet's header, so that steering by connection id reads the same
//! four bytes of every packet: the SPI is the receiver's connection id, and the IV's low half is at the offset of the
//! sequence number. The receiver infers the IV's high half from earlier packets, as with IPsec's extended sequence
//! numbers (RFC 4304, appendix A).

use crate::ParseError;
use crate::bits::U4;
use crate::layout::{Field, Header, Number, split_rows, write_rows};

mod field {
    use super::Field;

    pub(super) const PACKET_TYPE: Field = Field::new("Pkt Type", 0, 8, "9");
    pub(super) const VERSION: Field = Field::new("Version", 8, 4, "protocol version");
    pub(super) const CIPHER: Field =
        Field::new("Cipher", 12, 4, "0 AES-GCM-128, 1 AES-GCM-256 (PSP's versions)");
    pub(super) const KEY: Field =
        Field::new("Key", 16, 8, "number of the sender's key, modulo 2^8; the first is 0");
    pub(super) const CONTENT: Field =
        Field::new("Content", 24, 8, "type of the encrypted content; see Sealed contents");
    pub(super) const IV: Field = Field::new(
        "IV",
        32,
        32,
        "low half of the packet's number, which is unique among the sender's packets on this connection",
    );
    pub(super) const SPI: Field =
        Field::new("SPI", 64, 32, "the receiver's connection id, as Destination CID elsewhere");
}

pub(crate) const SPEC: Header = Header {
    name: "Sealed packet",
    source: "after Google's PSP Architecture Specification",
    about: "Precedes the encrypted content, which a tag of 16 bytes follows. The tag authenticates this header, the \
            bytes before it within UDP (VXLAN's header in the overlay) and the encrypted content. The nonce is the \
            SPI, then the 64 bits of the number.",
    fields: &[
        field::PACKET_TYPE,
        field::VERSION,
        field::CIPHER,
        field::KEY,
        field::CONTENT,
        field::IV,
        field::SPI,
    ],
};

/// All types of encrypted content.
pub(crate) const CONTENTS: &[Number] = &[
    Number {
        value: 0,
        name: "packet",
        meaning: "a data packet, an ACK or a close, with its payload",
    },
    Number {
        value: 1,
        name: "frame",
        meaning: "a frame of a tenant's network without reliable delivery; VXLAN's header names the network",
    },
];

const ROWS: usize = 3;

/// A cipher, with PSP's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Cipher {
    /// AES-GCM with keys of 128 bits.
    #[default]
    Aes128Gcm,
    /// AES-GCM with keys of 256 bits.
    Aes256Gcm,
}

impl Cipher {
    /// Returns the number on the wire.
    #[inline]
    pub const fn number(self) -> u8 {
        match self {
            Self::Aes128Gcm => 0,
            Self::Aes256Gcm => 1,
        }
    }
}

/// The type of the encrypted content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum SealedContent {
    /// A packet of the transport, with its payload.
    #[default]
    Packet = 0,
    /// A tenant's frame.
    Frame = 1,
}

/// The header of an encrypted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct SealedHeader {
    /// Protocol version.
    pub version: U4,
    /// The cipher.
    pub cipher: Cipher,
    /// Number of the sender's key, modulo 2^8.
    pub key: u8,
    /// Type of the encrypted content.
    pub content: SealedContent,
    /// Low half of the packet's number.
    pub iv: u32,
    /// The receiver's connection id.
    pub spi: u32,
}

impl SealedHeader {
    /// Length of the header in bytes.
    pub const LEN: usize = 4 * ROWS;

    /// Length of the authentication tag at the packet's end in bytes.
    pub const TAG_LEN: usize = 16;

    /// Number of bytes that encryption adds to a packet.
    pub const OVERHEAD: usize = Self::LEN + Self::TAG_LEN;

    /// The packet type on the wire.
    pub const PACKET_TYPE: u8 = 9;

    /// Splits `bytes` into header and rest. Any version is accepted.
    ///
    /// # Errors
    /// Returns `Truncated` below [`LEN`](Self::LEN) bytes, `UnknownPacketType` unless it is a sealed packet,
    /// `UnknownCipher` or `UnknownContent`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (rows, rest) = split_rows::<ROWS>(bytes)?;
        let got = field::PACKET_TYPE.read_u8(&rows);
        if got != Self::PACKET_TYPE {
            return Err(ParseError::UnknownPacketType { got });
        }
        let cipher = match field::CIPHER.read_u8(&rows) {
            0 => Cipher::Aes128Gcm,
            1 => Cipher::Aes256Gcm,
            got => return Err(ParseError::UnknownCipher { got }),
        };
        let content = match field::CONTENT.read_u8(&rows) {
            0 => SealedContent::Packet,
            1 => SealedContent::Frame,
            got => return Err(ParseError::UnknownContent { got }),
        };
        let header = Self {
            version: U4::truncate(field::VERSION.read(&rows)),
            cipher,
            key: field::KEY.read_u8(&rows),
            content,
            iv: field::IV.read(&rows),
            spi: field::SPI.read(&rows),
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
        field::CIPHER.write(&mut rows, self.cipher.number());
        field::KEY.write(&mut rows, self.key);
        field::CONTENT.write(&mut rows, self.content as u8);
        field::IV.write(&mut rows, self.iv);
        field::SPI.write(&mut rows, self.spi);
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
    use weft_units::Seed;

    use super::*;

    #[test]
    fn every_header_comes_back_as_it_went() {
        let mut rng = Seed(1).child("sealed", 0).rng();
        for number in 0..=u16::MAX {
            let mut bytes = [0; SealedHeader::LEN];
            bytes.fill_with(|| rng.next_u64().to_le_bytes()[7]);
            let [cipher, content] = number.to_be_bytes();
            (bytes[0], bytes[1], bytes[3]) = (9, cipher, content);
            let known = cipher & 0xf < 2 && content < 2;
            match SealedHeader::parse(&bytes) {
                Ok((header, rest)) => {
                    let mut out = [0xa5; SealedHeader::LEN];
                    header.emit(&mut out);
                    assert_eq!((known, out, rest), (true, bytes, &[][..]));
                }
                Err(ParseError::UnknownCipher { got }) => {
                    assert_eq!((got, known), (cipher & 0xf, false))
                }
                Err(error) => {
                    assert_eq!((error, known), (ParseError::UnknownContent { got: content }, false))
                }
            }
        }
    }

    /// Steering reads the connection id of data packets, ACKs and sealed packets from the same bytes.
    #[test]
    fn the_connection_id_has_the_same_offset_in_every_packet() {
        let bytes_of = |header: &Header, name| {
            header.fields.iter().find(|field| field.name == name).map(Field::bytes)
        };
        let expected = bytes_of(&SPEC, "SPI");
        assert_eq!(expected, Some(8..12));
        assert_eq!(bytes_of(&crate::data::SPEC, "Destination CID"), expected);
        assert_eq!(bytes_of(&crate::ack::SPEC, "Destination CID"), expected);
    }
}
