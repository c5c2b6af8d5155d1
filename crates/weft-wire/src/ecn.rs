//! Explicit congestion notification, two bits of either IP header (RFC 3168, section 5).

use crate::U2;

/// The ECN codepoint of an IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Ecn {
    /// Not ECN-capable: a congested switch drops the packet.
    #[default]
    NotCapable,
    /// ECT(1), which identifies L4S traffic (RFC 9331).
    Capable1,
    /// ECT(0): a congested switch marks the packet.
    Capable0,
    /// CE: a switch was congested.
    CongestionExperienced,
}

impl Ecn {
    /// Returns the number on the wire.
    #[inline]
    pub const fn number(self) -> U2 {
        U2::truncate(match self {
            Self::NotCapable => 0b00,
            Self::Capable1 => 0b01,
            Self::Capable0 => 0b10,
            Self::CongestionExperienced => 0b11,
        })
    }

    /// Returns the codepoint with this number.
    #[inline]
    pub const fn from_number(number: U2) -> Self {
        match number.get() {
            0b00 => Self::NotCapable,
            0b01 => Self::Capable1,
            0b10 => Self::Capable0,
            _ => Self::CongestionExperienced,
        }
    }
}
