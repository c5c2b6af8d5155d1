//! The simulator's clock: picoseconds since the run's epoch.
//!
//! A byte at 800 Gb/s takes 10 ps, so nanoseconds would round every packet. `u64` picoseconds last
//! 213 days, which is long for a simulation and too short for a daemon: hence two types.

use std::fmt;
use std::ops::{Add, AddAssign};

use weft_units::{Duration, Instant};

/// Picoseconds since the run's epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SimTime(u64);

/// A span of simulated time, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SimSpan(u64);

const PICOS_PER_NANO: u64 = 1_000;

impl SimTime {
    /// The start of the run.
    pub const EPOCH: Self = Self(0);
    /// The latest time: an event at this time never happens.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// Returns the time this many picoseconds after the epoch.
    pub const fn from_picos(picos: u64) -> Self {
        Self(picos)
    }

    /// Returns the picoseconds since the epoch.
    pub const fn as_picos(self) -> u64 {
        self.0
    }

    /// Returns the earliest time at which an engine's clock, which counts whole nanoseconds, has reached `deadline`.
    pub const fn serving(deadline: Instant) -> Self {
        Self(deadline.as_nanos().saturating_mul(PICOS_PER_NANO))
    }

    /// Returns the reading of an engine's clock: rounded down, so that it is never ahead.
    pub const fn engine_clock(self) -> Instant {
        Instant::from_nanos(self.0 / PICOS_PER_NANO)
    }

    /// Returns the time since `earlier`; zero if `earlier` is in the future.
    pub const fn since(self, earlier: Self) -> SimSpan {
        SimSpan(self.0.saturating_sub(earlier.0))
    }
}

impl SimTime {
    /// Returns `true` if the time is so late (106 days) that [`Self::since_either`] could not distinguish it from an
    /// earlier one.
    #[inline(always)]
    pub const fn is_remote(self) -> bool {
        self.0.cast_signed() < 0
    }

    /// Returns the same as [`Self::since`] if neither time [is remote](Self::is_remote), without an unpredictable
    /// branch. LLVM makes branches of saturating subtractions and of masks in an innermost loop (its pass
    /// `x86-cmov-conversion`), but not of shifts.
    #[inline(always)]
    pub const fn since_either(self, earlier: Self) -> SimSpan {
        const HALF: u32 = u64::BITS / 2;
        let span = self.0.wrapping_sub(earlier.0);
        // Half a word's bits if the span is negative; shifting twice by it clears the word.
        let out = (span >> (u64::BITS - 1)) * HALF as u64;
        SimSpan(span << out << out)
    }
}

impl SimSpan {
    /// The empty span.
    pub const ZERO: Self = Self(0);
    /// The longest span.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns a span of this many picoseconds.
    pub const fn from_picos(picos: u64) -> Self {
        Self(picos)
    }

    /// Returns the span in picoseconds.
    pub const fn as_picos(self) -> u64 {
        self.0
    }

    /// Returns the span in microseconds, for output.
    #[expect(clippy::cast_precision_loss, reason = "printed, not computed with")]
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns the span in seconds, for rates and output.
    #[expect(clippy::cast_precision_loss, reason = "2^53 ps is 2.5 hours")]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e12
    }
}

impl From<Duration> for SimSpan {
    fn from(span: Duration) -> Self {
        Self(span.as_nanos().saturating_mul(PICOS_PER_NANO))
    }
}

impl Add<SimSpan> for SimTime {
    type Output = Self;
    fn add(self, span: SimSpan) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<SimSpan> for SimTime {
    fn add_assign(&mut self, span: SimSpan) {
        *self = *self + span;
    }
}

impl Add for SimSpan {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for SimSpan {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl fmt::Display for SimTime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:.3}us", SimSpan(self.0).as_micros_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engines_clock_is_never_ahead_and_never_before_a_served_deadline() {
        let time = SimTime::from_picos(1_999);
        assert_eq!(time.engine_clock(), Instant::from_nanos(1));
        let deadline = Instant::from_nanos(2);
        assert_eq!(SimTime::serving(deadline), SimTime::from_picos(2_000));
        assert!(SimTime::serving(deadline).engine_clock() >= deadline);
    }

    #[test]
    fn the_far_future_stays_there() {
        assert_eq!(SimTime::serving(Instant::FAR_FUTURE), SimTime::FAR_FUTURE);
        assert_eq!(SimTime::FAR_FUTURE + SimSpan::from_picos(1), SimTime::FAR_FUTURE);
    }

    #[test]
    fn spans_between_times_that_are_not_remote_are_the_same_without_a_branch() {
        let latest = SimTime::from_picos(u64::MAX >> 1);
        let times = [0, 1, 999, 1_000_000_007, 1 << 62].map(SimTime::from_picos);
        for a in times.into_iter().chain([latest]) {
            for b in times.into_iter().chain([latest]) {
                assert_eq!(a.since_either(b), a.since(b), "{a:?} {b:?}");
            }
        }
        assert!(!latest.is_remote() && SimTime::FAR_FUTURE.is_remote());
    }
}
