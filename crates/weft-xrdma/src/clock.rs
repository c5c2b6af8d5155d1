//! The crate's only clock.

use rustix::time::{ClockId, clock_gettime};
use weft_units::Instant;

/// Returns the time since the machine's boot, without the time that it was suspended (CLOCK_MONOTONIC).
pub(crate) fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    let positive = "the clock counts up from zero";
    let seconds = u64::try_from(time.tv_sec).expect(positive);
    Instant::from_nanos(seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).expect(positive))
}
