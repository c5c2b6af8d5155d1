//! The speed of a link: the time of a byte.

use weft_units::BitRate;

use crate::time::SimSpan;

/// Number of fraction bits of [`Pace::per_byte`]. The time of a byte is cut off to a multiple of 2^-16 ps, so that the
/// time of a 9,000-byte packet is less than 0.14 ps too short.
const FRACTION_BITS: u32 = 16;

/// The addend that rounds up before the fraction is cut off.
const ROUND_UP: u64 = (1 << FRACTION_BITS) - 1;

/// The speed of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The time of a byte, in units of 2^-16 ps.
    per_byte: u64,
}

impl Pace {
    /// Returns the pace of a link of this rate. A rate below 2 kb/s has the pace at which the longest packet's time
    /// still fits 64 bits.
    pub fn new(rate: BitRate) -> Self {
        const SLOWEST: u64 = (u64::MAX - ROUND_UP) / u16::MAX as u64;
        let exact = (8_000_000_000_000_u128 << FRACTION_BITS) / u128::from(rate.as_bps());
        let exact = u64::try_from(exact).expect("a byte at 1 bit/s takes 8 seconds");
        Self { per_byte: exact.clamp(1, SLOWEST) }
    }

    /// Returns the time that `bytes` take, rounded up.
    #[inline]
    pub fn serialisation(self, bytes: u16) -> SimSpan {
        SimSpan::from_picos((u64::from(bytes) * self.per_byte + ROUND_UP) >> FRACTION_BITS)
    }

    /// Returns the time that any number of bytes takes, rounded down, saturating: a threshold in bytes as a time.
    pub fn span(self, bytes: u64) -> SimSpan {
        let picos = (u128::from(bytes) * u128::from(self.per_byte)) >> FRACTION_BITS;
        SimSpan::from_picos(u64::try_from(picos).unwrap_or(u64::MAX))
    }

    /// Returns the bytes that leave within `span`, rounded to the nearest.
    #[inline]
    pub fn bytes(self, span: SimSpan) -> u64 {
        let scaled = (u128::from(span.as_picos()) << FRACTION_BITS) + u128::from(self.per_byte / 2);
        u64::try_from(scaled / u128::from(self.per_byte)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_at_800_gbps_takes_10_ps() {
        let pace = Pace::new(BitRate::gbps(800).unwrap());
        assert_eq!(pace.serialisation(1), SimSpan::from_picos(10));
        assert_eq!(pace.serialisation(4150), SimSpan::from_picos(41_500));
    }

    #[test]
    fn an_odd_rate_rounds_up_and_its_queue_is_exact_in_bytes() {
        let pace = Pace::new(BitRate::bps(3_000_000_000).unwrap());
        assert_eq!(pace.serialisation(3), SimSpan::from_picos(8_000));
        assert_eq!(pace.serialisation(1), SimSpan::from_picos(2_667));
        for bytes in [0u16, 1, 999, 1500, 9000] {
            assert_eq!(pace.bytes(pace.serialisation(bytes)), u64::from(bytes));
        }
    }

    #[test]
    fn the_longest_packet_on_the_slowest_link_takes_a_time_that_fits() {
        let of = |bps| Pace::new(BitRate::bps(bps).unwrap()).serialisation(u16::MAX);
        assert_eq!(of(2_000), SimSpan::from_picos(65_535 * 4_000_000_000));
        assert!(of(1) > of(2_000));
    }
}
