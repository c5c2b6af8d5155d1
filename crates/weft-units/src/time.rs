//! Instants and durations in nanoseconds. An `Instant` counts from the run's epoch; a `u64` of nanoseconds lasts 584
//! years.

use core::ops::{Add, AddAssign, Div, Mul, Sub};

/// A time in nanoseconds since the run's epoch. The first one of a run comes from a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

/// A span of time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

impl Instant {
    /// The start of the run.
    pub const EPOCH: Self = Self(0);
    /// An instant later than all others.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// Returns the instant `nanos` nanoseconds after the epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`; zero if `earlier` is in the future.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }

    /// Returns the low 32 bits of the nanoseconds, a packet's timestamp field. They wrap every 4.29 s.
    #[expect(clippy::cast_possible_truncation, reason = "the wire carries the low half")]
    pub const fn to_wire(self) -> u32 {
        self.0 as u32
    }

    /// Returns the instant with the wire timestamp `stamp` that is nearest to `self`. It is the instant that was sent
    /// if that lies within 2.1 s of `self`.
    pub const fn from_wire(self, stamp: u32) -> Self {
        #[expect(clippy::cast_possible_wrap, reason = "the difference is taken modulo 2^32")]
        let behind = self.to_wire().wrapping_sub(stamp) as i32;
        Self(self.0.saturating_add_signed(-(behind as i64)))
    }
}

impl Duration {
    /// A span of zero.
    pub const ZERO: Self = Self(0);
    /// The longest span.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns a span of `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns a span of `micros` microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// Returns a span of `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Returns a span of `secs` seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Returns the span in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the span in microseconds, for output.
    #[expect(clippy::cast_precision_loss, reason = "printed, not computed with")]
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Returns the span in seconds, for rates and output.
    #[expect(clippy::cast_precision_loss, reason = "2^53 ns is 104 days")]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns the difference, or zero if `other` is longer.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns the absolute difference of two spans.
    pub const fn abs_diff(self, other: Self) -> Self {
        Self(self.0.abs_diff(other.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Duration {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl Mul<u64> for Duration {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl Div<u64> for Duration {
    type Output = Self;
    fn div(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wire_timestamp_is_recovered_across_the_wrap() {
        for nanos in [0, 1, u64::from(u32::MAX) - 5, u64::from(u32::MAX) + 5, 1 << 40] {
            let sent = Instant::from_nanos(nanos);
            let now = sent + Duration::from_micros(900);
            assert_eq!(now.from_wire(sent.to_wire()), sent, "sent at {nanos}");
        }
    }

    #[test]
    fn a_timestamp_from_the_future_is_in_the_future() {
        let now = Instant::from_nanos(1_000_000);
        assert_eq!(now.from_wire(1_000_500), Instant::from_nanos(1_000_500));
        assert_eq!(now.since(now.from_wire(1_000_500)), Duration::ZERO);
    }

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Instant::FAR_FUTURE + Duration::from_nanos(1), Instant::FAR_FUTURE);
        assert_eq!(Instant::EPOCH - Duration::from_nanos(1), Instant::EPOCH);
        assert_eq!(Duration::ZERO - Duration::from_nanos(1), Duration::ZERO);
    }
}
