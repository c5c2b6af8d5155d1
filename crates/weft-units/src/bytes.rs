//! A count of bytes with saturating arithmetic.

use core::ops::{Add, AddAssign, Sub};

/// A number of bytes: lengths, windows, bytes in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteCount(pub u64);

impl ByteCount {
    /// Zero bytes.
    pub const ZERO: Self = Self(0);

    /// Returns a count of `count` KiB (1,024 bytes each).
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    /// Returns a count of `count` MiB (1,048,576 bytes each).
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// Returns the difference, or zero if `other` is larger.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for ByteCount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for ByteCount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for ByteCount {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}
