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

/// Returns the result of `work`, or `None` once its thread has used `limit` of processor time, or has used none in a
/// span of `limit` because it is blocked, or panicked. Time in which other processes have the processor does not count.
pub(super) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (send_outcome, outcomes) = mpsc::channel();
    let (send_thread, threads) = mpsc::channel();
    thread::spawn(move || {
        // If the message is sent too late, the receiver no longer exists.
        let _ = send_thread.send(fs::read_link("/proc/thread-self"));
        let _ = send_outcome.send(work());
    });
    let thread = threads.recv().ok()?.ok();
    let mut before = Duration::ZERO;
    loop {
        match outcomes.recv_timeout(limit) {
            Ok(outcome) => return Some(outcome),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let ran = processor_time(thread.as_deref()?)?;
        if ran >= limit || ran == before {
            return None;
        }
        before = ran;
    }
}

/// Returns the processor time that a thread has used, or `None` if the kernel does not count it.
fn processor_time(thread: &Path) -> Option<Duration> {
    let text = fs::read_to_string(Path::new("/proc").join(thread).join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_ends_in_time_is_returned_and_other_work_is_abandoned() {
        assert_eq!(within(LIMIT, || 7), Some(7));
        let limit = Duration::from_millis(1);
        let (_hold, never) = mpsc::channel::<()>();
        assert_eq!(within(limit, move || never.recv()), None);
        let (hold, ended) = mpsc::channel::<()>();
        let endless = move || while ended.try_recv() == Err(mpsc::TryRecvError::Empty) {};
        assert_eq!(within(limit, endless), None);
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
