//! A number of bytes.

use core::ops::{Add, AddAssign, Sub};

/// A number of bytes: lengths, windows, bytes in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteCount(pub u64);

impl ByteCount {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// This many KiB.
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    /// This many MiB.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// This count, or zero where `other` is larger.
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
