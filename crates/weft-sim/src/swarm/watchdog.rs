//! Cases that never end. An engine or a world that goes round in circles without time moving cannot
//! be stopped from inside, so each case has a thread of its own and is given up after a while.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::{Verdict, run_case};

/// A case takes milliseconds; the slowest known, unoptimised and on a busy machine, seconds.
pub(super) const LIMIT: Duration = Duration::from_secs(120);

/// Runs one seed's case; `None` if it does not end. Its thread is then left behind.
pub(super) fn run_case_in_time(seed: u64) -> Option<Verdict> {
    within(LIMIT, move || run_case(seed))
}

/// What `work` gives, if it ends in time.
pub(super) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        // Nobody listens any more when it comes too late.
        let _ = tell.send(work());
    });
    told.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_in_time_is_told_and_what_does_not_is_given_up() {
        assert_eq!(within(LIMIT, || 7), Some(7));
        let (_hold, never) = mpsc::channel::<()>();
        let outcome = within(Duration::from_millis(1), move || never.recv());
        assert_eq!(outcome, None);
    }
}
