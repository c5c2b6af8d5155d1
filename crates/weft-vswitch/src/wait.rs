//! Sleeping until something happens.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weft_units::{Duration, Instant};

/// Longest sleep, so that a daemon that is asked to stop hears of it.
const LONGEST: Duration = Duration::from_millis(100);

/// Returns when one of `readable` has something, one of `writable` has room, or `until` has come:
/// which of `readable` that is.
///
/// # Errors
/// What the kernel said.
pub(crate) fn wait<'fd>(
    now: Instant,
    until: Option<Instant>,
    readable: impl Iterator<Item = BorrowedFd<'fd>>,
    writable: impl Iterator<Item = BorrowedFd<'fd>>,
) -> io::Result<Vec<bool>> {
    let span = until.map_or(LONGEST, |until| until.since(now)).min(LONGEST);
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
