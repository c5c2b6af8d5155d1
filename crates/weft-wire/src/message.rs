//! The message extension header, 16 bytes after the data header: the place of a packet's payload in its message.

use crate::ParseError;
use crate::layout::{Field, Header, split_rows, write_rows};

mod field {
    use super::Field;

    pub(super) const OPCODE: Field =
        Field::new("Opcode", 0, 8, "operation of the application; the transport only carries it");
    pub(super) const RESERVED: Field = Field::new("Reserved", 8, 8, "sent as zero, not read");
    pub(super) const TAG: Field =
        Field::new("Tag", 16, 16, "further data of the application; the transport only carries it");
    pub(super) const ID: Field =
        Field::new("Message ID", 32, 32, "number of the message in its connection, modulo 2^32");
    pub(super) const OFFSET: Field =
        Field::new("Offset", 64, 32, "offset of this packet's payload in the message, bytes");
    pub(super) const LENGTH: Field =
        Field::new("Length", 96, 32, "length of the whole message, bytes");
}

pub(crate) const SPEC: Header = Header {
    name: "Message extension",
    source: "Weft's own, not in the paper",
    about: "Follows a data header whose reserved byte is 1 or 2 and gives the place of the payload, so \
            that it can be placed out of order.",
    fields: &[field::OPCODE, field::RESERVED, field::TAG, field::ID, field::OFFSET, field::LENGTH],
};

const ROWS: usize = 4;

/// The header that names a packet's message and the place of the payload in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct MessageHeader {
    /// Operation of the application; the transport only carries it.
    pub opcode: u8,
    /// Further data of the application; the transport only carries it.
    pub tag: u16,
    /// Number of the message in its connection, from zero, modulo 2^32.
    pub id: u32,
    /// Offset of this packet's payload in the message, in bytes.
    pub offset: u32,
    /// Length of the whole message in bytes.
    pub length: u32,
}

impl MessageHeader {
    /// Length of the header in bytes.
    pub const LEN: usize = 4 * ROWS;

    /// Splits `bytes` into header and payload. The receiver must check that the payload fits the
    /// message.
    ///
    /// # Errors
    /// Returns `Truncated` below [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (rows, payload) = split_rows::<ROWS>(bytes)?;
        let header = Self {
            opcode: field::OPCODE.read_u8(&rows),
            tag: field::TAG.read_u16(&rows),
            id: field::ID.read(&rows),
            offset: field::OFFSET.read(&rows),
            length: field::LENGTH.read(&rows),
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
        field::OPCODE.write(&mut rows, self.opcode);
        field::TAG.write(&mut rows, self.tag);
        field::ID.write(&mut rows, self.id);
        field::OFFSET.write(&mut rows, self.offset);
        field::LENGTH.write(&mut rows, self.length);
        write_rows(out, &rows);
    }

    /// Returns the header's length in bytes.
    #[inline]
    pub const fn header_len(&self) -> usize {
        Self::LEN
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use weft_units::{Rng, Seed};

    use super::*;

    impl MessageHeader {
        /// Returns a header with this opcode and the other fields at random.
        pub(crate) fn sample(opcode: u8, rng: &mut Rng) -> Self {
            Self {
                opcode,
                tag: u16::try_from(rng.below(1 << 16)).unwrap(),
                id: rng.next_u32(),
                offset: rng.next_u32(),
                length: rng.next_u32(),
            }
        }
    }

    #[test]
    fn every_opcode_comes_back_as_it_went() {
        let mut rng = Seed(1).child("message header", 0).rng();
        for opcode in (0..=u8::MAX).cycle().take(1 << 16) {
            let header = MessageHeader::sample(opcode, &mut rng);
            let mut bytes = [0; MessageHeader::LEN];
            header.emit(&mut bytes);
            assert_eq!(MessageHeader::parse(&bytes), Ok((header, &[][..])));
        }
    }

    #[test]
    fn reserved_bits_are_not_read() {
        let mut bytes = [0; MessageHeader::LEN];
        MessageHeader::default().emit(&mut bytes);
        bytes[1] = 0xff;
        assert_eq!(MessageHeader::parse(&bytes), Ok((MessageHeader::default(), &[][..])));
    }

    #[test]
    fn a_short_header_is_refused_with_its_numbers() {
        let truncated = ParseError::Truncated { needed: 16, got: 15 };
        assert_eq!(MessageHeader::parse(&[0; 15]), Err(truncated));
    }
}
