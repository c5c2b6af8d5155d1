//! Integers of 2 to 24 bits, so that every header value fits its field and can be emitted.

/// Declares integer types of fewer bits than their word. Each type has the smallest word that fits: fields
/// that share a word are stored separately and loaded together, which stalls store-to-load forwarding.
macro_rules! bits {
    ($($(#[$about:meta])+ $name:ident($word:ty);)+) => {$(
        $(#[$about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name<const BITS: u32>($word);

        impl<const BITS: u32> $name<BITS> {
            /// The maximum value.
            pub const MAX: Self = Self(<$word>::MAX >> (<$word>::BITS - BITS));

            /// Returns `value`, or `None` if it needs more than `BITS` bits.
            #[inline]
            pub const fn new(value: $word) -> Option<Self> {
                if value <= Self::MAX.0 { Some(Self(value)) } else { None }
            }

            /// Returns the low `BITS` bits of `value`.
            #[inline]
            #[allow(clippy::cast_possible_truncation, reason = "masked to what the word holds")]
            pub const fn truncate(value: u32) -> Self {
                Self((value & Self::MAX.0 as u32) as $word)
            }

            /// Returns the value.
            #[inline]
            pub const fn get(self) -> $word {
                self.0
            }
        }

        impl<const BITS: u32> From<$name<BITS>> for u32 {
            #[inline]
            fn from(bits: $name<BITS>) -> Self {
                Self::from(bits.0)
            }
        }
    )+};
}

bits! {
    /// An integer of `BITS` bits, at most 8. A larger value cannot be constructed.
    NarrowBits(u8);
    /// An integer of `BITS` bits, more than 8 and at most 16. A larger value cannot be constructed.
    Bits(u16);
    /// An integer of `BITS` bits, more than 16 and at most 32. A larger value cannot be constructed.
    WideBits(u32);
}

/// Two bits: the ECN field of an IP header.
pub type U2 = NarrowBits<2>;
/// Three bits: a path id, an ACK type.
pub type U3 = NarrowBits<3>;
/// Four bits: a version, a hop count.
pub type U4 = NarrowBits<4>;
/// Five bits: an ACK value.
pub type U5 = NarrowBits<5>;
/// Six bits: reserved space in the ACK header, a DSCP.
pub type U6 = NarrowBits<6>;
/// Eleven bits: packet counts in an ACK.
pub type U11 = Bits<11>;
/// Thirteen bits: an IPv4 fragment offset.
pub type U13 = Bits<13>;
/// Twenty bits: an IPv6 flow label.
pub type U20 = WideBits<20>;
/// Twenty-four bits: a VXLAN network identifier.
pub type U24 = WideBits<24>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_does_not_fit_cannot_be_constructed() {
        assert_eq!(U4::new(15), Some(U4::MAX));
        assert_eq!(U4::new(16), None);
        assert_eq!(U11::MAX.get(), 2047);
        assert_eq!(U24::new(1 << 24), None);
        assert_eq!(U24::MAX.get(), 0x00ff_ffff);
        assert_eq!(Bits::<16>::MAX.get(), u16::MAX);
    }

    #[test]
    fn truncation_keeps_the_low_bits() {
        assert_eq!(U3::truncate(0b1_1010).get(), 0b010);
        assert_eq!(U20::truncate(0xfff1_2345).get(), 0x1_2345);
    }
}
