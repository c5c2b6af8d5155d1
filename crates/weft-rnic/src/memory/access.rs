//! Access rights (`enum ibv_access_flags`, with its numbers).

use core::ops::BitOr;

use crate::VerbsError;

/// A set of access rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "u32", try_from = "u32"))]
pub struct Access(u32);

impl From<Access> for u32 {
    fn from(access: Access) -> Self {
        access.0
    }
}

impl TryFrom<u32> for Access {
    type Error = VerbsError;

    fn try_from(bits: u32) -> Result<Self, VerbsError> {
        Self::from_bits(bits)
            .ok_or(VerbsError::Invalid("access rights that this device does not know"))
    }
}

impl Access {
    /// Local read access only.
    pub const NONE: Self = Self(0);
    /// The device may write for the owning process.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may write.
    pub const REMOTE_WRITE: Self = Self(1 << 1);
    /// Peers may read.
    pub const REMOTE_READ: Self = Self(1 << 2);
    /// Peers may use atomics.
    pub const REMOTE_ATOMIC: Self = Self(1 << 3);
    /// Memory windows may be bound.
    pub const MW_BIND: Self = Self(1 << 4);
    /// Addresses are offsets from the start of the region.
    pub const ZERO_BASED: Self = Self(1 << 5);
    /// Messages may become visible out of order; the last byte of a message still becomes visible last.
    pub const RELAXED_ORDERING: Self = Self(1 << 20);

    const ALL: u32 = 0x3f | 1 << 20;

    /// Returns the set with these bits; `None` if a bit is unknown.
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits & !Self::ALL == 0 { Some(Self(bits)) } else { None }
    }

    /// Returns the bits of the set.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns `true` if the set contains all rights of `other`.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns `true` if the set contains any right of `other`.
    pub(crate) const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
