//! The one place where time comes from.

use rustix::time::{ClockId, clock_gettime};
use weft_units::Instant;

/// The system's monotonic clock. Its epoch is the machine's boot, so instants of two processes on
/// one machine can be compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// The time now, nanoseconds since boot.
    #[inline]
    pub fn now(self) -> Instant {
        Instant::from_nanos(nanos(ClockId::Monotonic))
    }

    /// The wall clock, nanoseconds since 1970.
    pub fn wall(self) -> u64 {
        nanos(ClockId::Realtime)
    }

    /// How far the wall clock is ahead of this one, nanoseconds. The kernel stamps packets by the
    /// wall clock; the two drift apart when it is stepped, so this is asked for each batch.
    #[inline]
    pub fn wall_clock_lead(self) -> u64 {
        nanos(ClockId::Realtime).wrapping_sub(nanos(ClockId::Monotonic))
    }
}

#[inline]
fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let positive = "both clocks count up from zero";
    u64::try_from(time.tv_sec).expect(positive) * 1_000_000_000
        + u64::try_from(time.tv_nsec).expect(positive)
}
