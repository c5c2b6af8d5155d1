//! The encoding of protocol buffers, as far as traces need it: fields of a message that is in memory.
//!
//! Written by hand rather than generated: the readers visit each field once, in order, and keep next to nothing.

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    /// A number of variable length.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Four bytes.
    Fixed32(u32),
    /// Text, bytes, a message, or packed numbers.
    Bytes(&'a [u8]),
}

/// The fields of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(&'a [u8]);

/// A message ends within a field, or has a field of an unknown type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl<'a> Fields<'a> {
    pub(super) const fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// Returns the next field's number and value; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
                self.0 = rest;
                Value::Bytes(bytes)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err(Malformed),
        };
        Ok(Some((key >> 3, value)))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*bytes)
    }

    /// Returns the next number of variable length; the end is an error.
    pub(super) fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(Malformed)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    /// Returns `true` if there are no more fields.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Value<'_> {
    /// Adds a repeated number, packed or not, to `numbers`.
    pub(super) fn numbers(self, numbers: &mut Vec<u64>) -> Result<(), Malformed> {
        match self {
            Self::Varint(number) => numbers.push(number),
            Self::Bytes(packed) => {
                let mut fields = Fields::of(packed);
                while !fields.is_empty() {
                    numbers.push(fields.varint()?);
                }
            }
            Self::Fixed32(_) | Self::Fixed64(_) => return Err(Malformed),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_encoding_of_the_specification() {
        // The example of protobuf.dev's "Encoding": field 1 is 150; then a text, and packed numbers 3, 270, 86942.
        let message = b"\x08\x96\x01\x12\x07testing\x32\x06\x03\x8e\x02\x9e\xa7\x05\x1d\x01\0\0\0";
        let mut fields = Fields::of(message);
        assert_eq!(fields.next(), Ok(Some((1, Value::Varint(150)))));
        assert_eq!(fields.next(), Ok(Some((2, Value::Bytes(b"testing")))));
        let (number, packed) = fields.next().unwrap().unwrap();
        let mut numbers = Vec::new();
        packed.numbers(&mut numbers).unwrap();
        assert_eq!((number, numbers), (6, vec![3, 270, 86942]));
        assert_eq!(fields.next(), Ok(Some((3, Value::Fixed32(1)))));
        assert_eq!(fields.next(), Ok(None));
    }

    #[test]
    fn what_ends_within_a_field_is_malformed() {
        for message in
            [&b"\x08"[..], b"\x08\x96", b"\x12\x07test", b"\x0b", b"\x09\0\0\0", &[0xff; 11]]
        {
            assert_eq!(Fields::of(message).next(), Err(Malformed), "{message:?}");
        }
    }
}
