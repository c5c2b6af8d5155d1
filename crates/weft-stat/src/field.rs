//! Values as words: everything in a file is a little-endian word of 64 bits, or several.

use std::net::{IpAddr, Ipv6Addr};

/// Why bytes are not what a program says of itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// It is shorter than what it says it has.
    #[error("{what} ends at byte {needed}, and the file at byte {got}")]
    Short {
        /// What is cut off.
        what: &'static str,
        /// Where that ends.
        needed: u64,
        /// Where the file ends.
        got: u64,
    },
    /// It begins with other words.
    #[error("it does not begin as a file of Weft's does")]
    Magic,
    /// It is of a version that is not known.
    #[error("it has layout version {got}; this weft reads version {known}")]
    Version {
        /// The file's.
        got: u64,
        /// The one that is known.
        known: u64,
    },
    /// A record is shorter than it must be.
    #[error("its {table} records have {got} words, expected at least {least}")]
    RecordWords {
        /// Of which table.
        table: &'static str,
        /// How many words one has.
        got: u64,
        /// How many it must have.
        least: u64,
    },
    /// A table that has one record has another number of them.
    #[error("it has {got} {table} records, expected one")]
    NotOne {
        /// Which table.
        table: &'static str,
        /// How many it has.
        got: u64,
    },
    /// A number stands for nothing.
    #[error("{got} is no {what}")]
    Code {
        /// For what it should stand.
        what: &'static str,
        /// The number.
        got: u64,
    },
    /// A text is no UTF-8.
    #[error("a text is not UTF-8")]
    Utf8,
    /// Its program was writing each time.
    #[error("its program was writing it at every try")]
    Busy,
}

/// A field of a record, for listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldRow {
    /// Its name.
    pub name: &'static str,
    /// Words it has.
    pub words: usize,
    /// What it says, and in which unit.
    pub about: &'static str,
}

/// A value of some words.
pub trait Field: Sized {
    /// How many.
    const WORDS: usize;

    /// Appends them.
    fn put(&self, words: &mut Vec<u64>);

    /// Reads them from exactly as many.
    ///
    /// # Errors
    /// They are no such value.
    fn take(words: &[u64]) -> Result<Self, LayoutError>;
}

impl Field for u64 {
    const WORDS: usize = 1;

    fn put(&self, words: &mut Vec<u64>) {
        words.push(*self);
    }

    fn take(words: &[u64]) -> Result<Self, LayoutError> {
        Ok(words[0])
    }
}

/// All ones where there is none.
impl Field for Option<u64> {
    const WORDS: usize = 1;

    fn put(&self, words: &mut Vec<u64>) {
        words.push(self.unwrap_or(u64::MAX));
    }

    fn take(words: &[u64]) -> Result<Self, LayoutError> {
        Ok(Some(words[0]).filter(|&word| word != u64::MAX))
    }
}

/// Two's complement; the least number where there is none.
impl Field for Option<i64> {
    const WORDS: usize = 1;

    fn put(&self, words: &mut Vec<u64>) {
        words.push(self.unwrap_or(i64::MIN).cast_unsigned());
    }

    fn take(words: &[u64]) -> Result<Self, LayoutError> {
        Ok(Some(words[0].cast_signed()).filter(|&number| number != i64::MIN))
    }
}

/// As in IPv6, most significant word first; IPv4 is mapped into it. Zeros where it is not known.
impl Field for IpAddr {
    const WORDS: usize = 2;

    fn put(&self, words: &mut Vec<u64>) {
        let bits = match self {
            Self::V4(ip) => ip.to_ipv6_mapped().to_bits(),
            Self::V6(ip) => ip.to_bits(),
        };
        let [high, low] = [bits >> 64, bits & u128::from(u64::MAX)];
        words.extend([high, low].map(|half| u64::try_from(half).expect("half of it")));
    }

    fn take(words: &[u64]) -> Result<Self, LayoutError> {
        let bits = u128::from(words[0]) << 64 | u128::from(words[1]);
        Ok(Ipv6Addr::from_bits(bits).to_canonical())
    }
}
