//! The encoding of values: a file consists of little-endian 64-bit words, and a value has one or several.

use std::net::{IpAddr, Ipv6Addr};

/// An error of bytes that are not a status file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The file is shorter than its header says.
    #[error("the file is truncated: {what} ends at byte {needed}, the file at byte {got}")]
    Short {
        /// The part that is cut off.
        what: &'static str,
        /// The end of that part, in bytes.
        needed: u64,
        /// The length of the file, in bytes.
        got: u64,
    },
    /// The first word is not [`MAGIC`](crate::MAGIC).
    #[error("its first word is not WEFTSTAT")]
    Magic,
    /// The layout version is unknown.
    #[error("it has layout version {got}; this weft reads version {known}")]
    Version {
        /// The file's version.
        got: u64,
        /// The known version.
        known: u64,
    },
    /// A record is shorter than it must be.
    #[error("its {table} records have {got} words, expected at least {min}")]
    RecordWords {
        /// The table's name.
        table: &'static str,
        /// Number of words of its records.
        got: u64,
        /// Minimum number of words.
        min: u64,
    },
    /// A table that must have one record has a different number.
    #[error("it has {got} {table} records, expected one")]
    NotOne {
        /// The table's name.
        table: &'static str,
        /// Number of records.
        got: u64,
    },
    /// A code has no meaning.
    #[error("{got} is not a {what}")]
    Code {
        /// The code's type.
        what: &'static str,
        /// The code.
        got: u64,
    },
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    Utf8,
    /// The program was writing the file at every attempt.
    #[error("its program was writing the file at every attempt")]
    Busy,
}

/// A field of a record, for documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldRow {
    /// The name.
    pub name: &'static str,
    /// Number of words.
    pub words: usize,
    /// The meaning and the unit.
    pub about: &'static str,
}

/// A value that is encoded in a fixed number of words.
pub trait Field: Sized {
    /// Number of words.
    const WORDS: usize;

    /// Appends the words of the value.
    fn put(&self, words: &mut Vec<u64>);

    /// Decodes a value from exactly [`WORDS`](Self::WORDS) words.
    ///
    /// # Errors
    /// Returns an error if the words do not encode such a value.
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

/// `None` is a word of all ones.
impl Field for Option<u64> {
    const WORDS: usize = 1;

    fn put(&self, words: &mut Vec<u64>) {
        words.push(self.unwrap_or(u64::MAX));
    }

    fn take(words: &[u64]) -> Result<Self, LayoutError> {
        Ok(Some(words[0]).filter(|&word| word != u64::MAX))
    }
}

/// Two's complement; `None` is `i64::MIN`.
impl Field for Option<i64> {
    const WORDS: usize = 1;

    fn put(&self, words: &mut Vec<u64>) {
        words.push(self.unwrap_or(i64::MIN).cast_unsigned());
    }

    fn take(words: &[u64]) -> Result<Self, LayoutError> {
        Ok(Some(words[0].cast_signed()).filter(|&number| number != i64::MIN))
    }
}

/// An IPv6 address, most significant word first. IPv4 is mapped into IPv6; zeros mean that the address is unknown.
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
