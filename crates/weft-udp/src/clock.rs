//! The clocks: the only module of this crate that reads the time.

use rustix::time::{ClockId, clock_gettime};
use weft_units::Instant;

/// The system's monotonic clock (`CLOCK_MONOTONIC`), which starts at the machine's boot, so instants of two processes
/// on one machine can be compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// Returns the time, nanoseconds since boot.
    #[inline]
    pub fn now(self) -> Instant {
        Instant::from_nanos(nanos(ClockId::Monotonic))
    }

    /// Returns the wall clock's time, nanoseconds since 1970.
    pub fn wall(self) -> u64 {
        nanos(ClockId::Realtime)
    }

    /// Returns the wall clock's lead over this clock, nanoseconds. The kernel stamps packets by the
    /// wall clock; the lead changes when that is stepped, so it is read again for each batch.
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
