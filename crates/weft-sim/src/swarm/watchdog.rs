//! The watchdog for cases that never end. An engine or a world in an endless loop without simulated time cannot be
//! stopped from inside, so each case has its own thread, which is abandoned after a time limit.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::Verdict;

/// Maximum processor time of one case's thread. A case takes milliseconds; the slowest known, unoptimised, seconds.
pub(super) const LIMIT: Duration = Duration::from_secs(120);

/// Runs one seed's case; returns `None` if it does not end. Its thread then continues.
pub(super) fn run_in_time(seed: u64, run: fn(u64) -> Verdict) -> Option<Verdict> {
    within(LIMIT, move || run(seed))
}

/// Returns what `work` returns, or `None` once its thread has used `limit` of processor time, or has used none in a span
/// of `limit` because it is blocked. Time in which other processes have the processor does not count.
pub(super) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (notify, told) = mpsc::channel();
    let (introduce, introduced) = mpsc::channel();
    thread::spawn(move || {
        // If the message is too late there is no receiver any more.
        let _ = introduce.send(fs::read_link("/proc/thread-self"));
        let _ = notify.send(work());
    });
    let thread = introduced.recv().ok()?.ok();
    let mut before = Duration::ZERO;
    loop {
        match told.recv_timeout(limit) {
            Ok(outcome) => return Some(outcome),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let ran = time_run(thread.as_deref()?)?;
        if ran >= limit || ran == before {
            return None;
        }
        before = ran;
    }
}

/// Returns the processor time that a thread has used, or `None` if the kernel does not count it.
fn time_run(thread: &Path) -> Option<Duration> {
    let text = fs::read_to_string(Path::new("/proc").join(thread).join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_in_time_is_told_and_what_does_not_is_given_up() {
        assert_eq!(within(LIMIT, || 7), Some(7));
        let limit = Duration::from_millis(1);
        let (_hold, never) = mpsc::channel::<()>();
        assert_eq!(within(limit, move || never.recv()), None);
        let (hold, ended) = mpsc::channel::<()>();
        let circles = move || while ended.try_recv() == Err(mpsc::TryRecvError::Empty) {};
        assert_eq!(within(limit, circles), None);
        drop(hold);
    }

    #[test]
    fn only_a_threads_own_time_counts() {
        let limit = Duration::from_millis(400);
        let (_hold, never) = mpsc::channel::<()>();
        let work = move || {
            // Longer than the limit, and hardly any of it on a processor.
            (0..6).for_each(|_| assert!(never.recv_timeout(limit / 4).is_err()));
            7
        };
        assert_eq!(within(limit, work), Some(7));
    }
}
