//! The header of the key exchange that a request and an accept carry after their terms: two messages of the Noise
//! protocol framework (revision 34).

use crate::ParseError;
use crate::layout::{Field, Header, split_rows, write_rows};

mod field {
    use super::Field;

    pub(super) const PROTOCOL: Field = Field::new(
        "Protocol",
        0,
        8,
        "1 Noise_IXpsk0_25519_ChaChaPoly_SHA256; a peer that does not know the number answers as if there were no exchange",
    );
    pub(super) const RESERVED: Field = Field::new("Reserved", 8, 8, "sent as zero, not read");
    pub(super) const LENGTH: Field =
        Field::new("Length", 16, 16, "length of the Noise message that follows, bytes");
}

pub(crate) const SPEC: Header = Header {
    name: "Key exchange",
    source: "Noise protocol framework, revision 34",
    about: "Follows the terms of a request (first message) and of an accept (second message) whose sender can \
            encrypt. The prologue is the request's header and terms with Reserved and Token as zero. The first \
            message's payload is the sender's cipher; the second's is the sender's cipher, then the accept's header \
            and terms with Reserved as zero, which the receiver compares with the unencrypted ones.",
    fields: &[field::PROTOCOL, field::RESERVED, field::LENGTH],
};

const ROWS: usize = 1;

/// The header of a key exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExchangeHeader {
    /// The protocol's number.
    pub protocol: u8,
    /// Length of the Noise message in bytes.
    pub length: u16,
}

impl ExchangeHeader {
    /// Length of the header in bytes.
    pub const LEN: usize = 4 * ROWS;

    /// The number of `Noise_IXpsk0_25519_ChaChaPoly_SHA256`.
    pub const NOISE_IX_PSK0: u8 = 1;

    /// Splits `bytes` into the header, the message and the rest, which is reserved for later versions.
    ///
    /// # Errors
    /// Returns `Truncated` if bytes are missing.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8], &[u8]), ParseError> {
        let (rows, rest) = split_rows::<ROWS>(bytes)?;
        let header = Self {
            protocol: field::PROTOCOL.read_u8(&rows),
            length: u16::try_from(field::LENGTH.read(&rows)).expect("16 bits"),
        };
        let needed = usize::from(header.length);
        let Some((message, rest)) = rest.split_at_checked(needed) else {
            let got = bytes.len();
            return Err(ParseError::Truncated { needed: Self::LEN + needed, got });
        };
        Ok((header, message, rest))
    }

    /// Writes the header over the first [`LEN`](Self::LEN) bytes of `out`.
    ///
    /// # Panics
    /// Panics if `out` is shorter.
    pub fn emit(&self, out: &mut [u8]) {
        let mut rows = [0; ROWS];
        field::PROTOCOL.write(&mut rows, self.protocol);
        field::LENGTH.write(&mut rows, self.length);
        write_rows(out, &rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_round_trips_and_a_truncated_one_is_refused() {
        let header = ExchangeHeader { protocol: ExchangeHeader::NOISE_IX_PSK0, length: 3 };
        let mut bytes = [7; 9];
        header.emit(&mut bytes);
        assert_eq!(ExchangeHeader::parse(&bytes), Ok((header, &[7; 3][..], &[7; 2][..])));
        for len in 0..7 {
            let error = ExchangeHeader::parse(&bytes[..len]).unwrap_err();
            assert_eq!(error.reason(), "truncated", "{len} bytes");
        }
    }
}
