//! A link rate in bits per second, never zero.

use core::num::NonZeroU64;

use crate::{ByteCount, Duration};

/// A rate in bits per second. A rate of zero cannot be constructed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(NonZeroU64);

impl BitRate {
    /// Returns a rate of `bits` bits per second; `None` for zero.
    pub const fn bps(bits: u64) -> Option<Self> {
        match NonZeroU64::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// Returns a rate of `giga` gigabits per second; `None` for zero or if the rate exceeds `u64`.
    pub const fn gbps(giga: u64) -> Option<Self> {
        match giga.checked_mul(1_000_000_000) {
            Some(bits) => Self::bps(bits),
            None => None,
        }
    }

    /// Returns the rate in bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0.get()
    }

    /// Returns the time to put `bytes` on a link of this rate, rounded up to a nanosecond.
    pub fn serialization_delay(self, bytes: ByteCount) -> Duration {
        let bit_nanos = u128::from(bytes.0) * 8 * 1_000_000_000;
        let nanos = bit_nanos.div_ceil(u128::from(self.0.get()));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the number of bytes that a link of this rate carries in `span`, rounded down.
    pub fn bytes_in(self, span: Duration) -> ByteCount {
        let bytes = u128::from(self.0.get()) * u128::from(span.as_nanos()) / 8_000_000_000;
        ByteCount(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_of_1048_bytes_takes_84_ns_at_100_gbps() {
        let rate = BitRate::gbps(100).unwrap();
        assert_eq!(rate.serialization_delay(ByteCount(1048)), Duration::from_nanos(84));
    }

    #[test]
    fn the_bandwidth_delay_product_of_the_reference_fabric_is_104_000_bytes() {
        let rate = BitRate::gbps(100).unwrap();
        assert_eq!(rate.bytes_in(Duration::from_nanos(8320)), ByteCount(104_000));
    }

    #[test]
    fn a_rate_of_zero_cannot_be_built() {
        assert_eq!(BitRate::bps(0), None);
        assert_eq!(BitRate::gbps(u64::MAX), None);
    }
}
