//! The wait for descriptors.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weft_units::{Duration, Instant};

/// Longest sleep, so that a daemon notices a request to stop.
const MAX_SLEEP: Duration = Duration::from_millis(100);

/// Waits until one of `readable` is readable, one of `writable` is writable, or `until` has come. Returns for each
/// of `readable` whether it is ready.
///
/// # Errors
/// The kernel's error.
pub(crate) fn wait<'fd>(
    now: Instant,
    until: Option<Instant>,
    readable: impl Iterator<Item = BorrowedFd<'fd>>,
    writable: impl Iterator<Item = BorrowedFd<'fd>>,
) -> io::Result<Vec<bool>> {
    let span = until.map_or(MAX_SLEEP, |until| until.since(now)).min(MAX_SLEEP);
    let readable = readable.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let writable = writable.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT));
    let mut fds: Vec<_> = readable.collect();
    let readable = fds.len();
    fds.extend(writable);
    let nanos = span.as_nanos();
    let timeout = Timespec {
        tv_sec: i64::try_from(nanos / 1_000_000_000).expect("under a second"),
        tv_nsec: i64::try_from(nanos % 1_000_000_000).expect("under a second"),
    };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok(fds[..readable].iter().map(|fd| !fd.revents().is_empty()).collect())
}
