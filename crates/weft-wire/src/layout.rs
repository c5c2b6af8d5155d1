//! The fields of a header: their position, and how rows of a header are read and written. A header is a table of
//! [`Field`]s; parsing, emitting, the tests and the generator of `docs/reference/wire.md` all read the same table, so
//! that they cannot disagree.
//!
//! Headers are drawn and read in rows of 32 bits in network order. Bit 0 is the most significant
//! bit of the first byte, as in RFCs and in the paper's figures.

use core::ops::Range;

use crate::ParseError;

/// One field of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The field's name in the standard or the paper.
    pub name: &'static str,
    /// Offset of its most significant bit from the header's first bit.
    pub first_bit: usize,
    /// Length in bits.
    pub width: usize,
    /// The field's meaning, with its unit.
    pub meaning: &'static str,
}

/// One header: its fields in wire order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The header's name.
    pub name: &'static str,
    /// The document that defines it.
    pub source: &'static str,
    /// The header's purpose, and rules beyond single fields.
    pub about: &'static str,
    /// The header's fields; every bit of the header belongs to exactly one.
    pub fields: &'static [Field],
}

/// A number on the wire that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// The number.
    pub value: u8,
    /// The number's name.
    pub name: &'static str,
    /// The number's meaning.
    pub meaning: &'static str,
}

impl Header {
    /// Returns the header's length in bits, to the end of its last field.
    pub const fn bits(&self) -> usize {
        match self.fields.last() {
            Some(last) => last.first_bit + last.width,
            None => 0,
        }
    }
}

impl Field {
    pub(crate) const fn new(
        name: &'static str,
        first_bit: usize,
        width: usize,
        meaning: &'static str,
    ) -> Self {
        Self { name, first_bit, width, meaning }
    }

    /// Returns the range of bytes that the field overlaps.
    pub const fn bytes(&self) -> Range<usize> {
        self.first_bit / 8..(self.first_bit + self.width).div_ceil(8)
    }

    #[inline]
    const fn shift(&self) -> usize {
        32 - self.first_bit % 32 - self.width
    }

    #[inline]
    const fn mask(&self) -> u32 {
        u32::MAX >> (32 - self.width)
    }

    /// Returns the value of a field that lies within one row.
    #[inline]
    pub(crate) const fn read<const N: usize>(&self, rows: &[u32; N]) -> u32 {
        (rows[self.first_bit / 32] >> self.shift()) & self.mask()
    }

    /// Returns the value of a field of at most 16 bits.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "called on fields of at most 16 bits")]
    pub(crate) const fn read_u16<const N: usize>(&self, rows: &[u32; N]) -> u16 {
        debug_assert!(self.width <= 16, "the field is wider than its value");
        self.read(rows) as u16
    }

    /// Returns the value of a field of at most 8 bits.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "called on fields of at most 8 bits")]
    pub(crate) const fn read_u8<const N: usize>(&self, rows: &[u32; N]) -> u8 {
        debug_assert!(self.width <= 8, "the field is wider than its value");
        self.read(rows) as u8
    }

    /// Returns the value of a field of two whole rows.
    #[inline]
    pub(crate) const fn read_u64<const N: usize>(&self, rows: &[u32; N]) -> u64 {
        let row = self.first_bit / 32;
        (rows[row] as u64) << 32 | rows[row + 1] as u64
    }

    /// Returns the value of a field of four whole rows.
    #[inline]
    pub(crate) const fn read_u128<const N: usize>(&self, rows: &[u32; N]) -> u128 {
        let row = self.first_bit / 32;
        (rows[row] as u128) << 96
            | (rows[row + 1] as u128) << 64
            | (rows[row + 2] as u128) << 32
            | rows[row + 3] as u128
    }

    /// Returns `true` if a field of one bit is set.
    #[inline]
    pub(crate) const fn flag<const N: usize>(&self, rows: &[u32; N]) -> bool {
        self.read(rows) != 0
    }

    /// Writes a value that fits into the field, whose bits must be zero.
    #[inline]
    pub(crate) fn write<const N: usize>(&self, rows: &mut [u32; N], value: impl Into<u32>) {
        let value = value.into();
        debug_assert!(value <= self.mask(), "{} does not fit {} bits", value, self.width);
        rows[self.first_bit / 32] |= value << self.shift();
    }

    /// Writes a value into a field of two whole rows.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a u64 is two rows")]
    pub(crate) const fn write_u64<const N: usize>(&self, rows: &mut [u32; N], value: u64) {
        let row = self.first_bit / 32;
        rows[row] = (value >> 32) as u32;
        rows[row + 1] = value as u32;
    }

    /// Writes a value into a field of four whole rows.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a u128 is four rows")]
    pub(crate) const fn write_u128<const N: usize>(&self, rows: &mut [u32; N], value: u128) {
        let row = self.first_bit / 32;
        rows[row] = (value >> 96) as u32;
        rows[row + 1] = (value >> 64) as u32;
        rows[row + 2] = (value >> 32) as u32;
        rows[row + 3] = value as u32;
    }
}

/// Splits `bytes` into the first `N` rows and the rest.
#[inline(always)]
pub(crate) fn split_rows<const N: usize>(bytes: &[u8]) -> Result<([u32; N], &[u8]), ParseError> {
    let Some((header, rest)) = bytes.split_at_checked(4 * N) else {
        return Err(ParseError::Truncated { needed: 4 * N, got: bytes.len() });
    };
    let mut rows = [0; N];
    for (row, chunk) in rows.iter_mut().zip(header.as_chunks::<4>().0) {
        *row = u32::from_be_bytes(*chunk);
    }
    Ok((rows, rest))
}

/// Writes rows over the start of `out` and returns the rest of `out`.
///
/// # Panics
/// Panics if `out` is shorter than the rows.
#[inline(always)]
pub(crate) fn write_rows<'a, const N: usize>(out: &'a mut [u8], rows: &[u32; N]) -> &'a mut [u8] {
    let (header, rest) = out.split_at_mut(4 * N);
    for (chunk, row) in header.as_chunks_mut::<4>().0.iter_mut().zip(rows) {
        *chunk = row.to_be_bytes();
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_where_it_was_written() {
        let narrow = Field::new("narrow", 37, 5, "");
        let mut rows = [0; 2];
        narrow.write(&mut rows, 0b1_0011_u32);
        assert_eq!(rows, [0, 0b1_0011 << 22]);
        assert_eq!(narrow.read(&rows), 0b1_0011);
        assert_eq!(narrow.bytes(), 4..6);
    }
}
