//! The sleep of a rank that waits for descriptors.

use rustix::event::{PollFd, Timespec, poll};
use weft_units::Duration;

/// Waits until a descriptor is ready, at most for `timeout`, or an hour if it is longer.
pub(crate) fn wait(descriptors: &mut [PollFd<'_>], timeout: Duration) {
    let nanos = timeout.as_nanos().min(3_600_000_000_000);
    let timeout = Timespec {
        tv_sec: i64::try_from(nanos / 1_000_000_000).expect("an hour at most"),
        tv_nsec: i64::try_from(nanos % 1_000_000_000).expect("less than a second"),
    };
    // An interrupted wait counts as a short one.
    let _ = poll(descriptors, Some(&timeout));
}
