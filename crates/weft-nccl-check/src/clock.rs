//! Real time: this program watches other code.

use std::time::{Duration, Instant};

/// Returns the current time.
#[expect(clippy::disallowed_methods, reason = "no engine runs here")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The time since the last progress of a check.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    since: Instant,
    limit: Duration,
}

impl Stopwatch {
    pub(crate) fn start(limit: Duration) -> Self {
        Self { since: now(), limit }
    }

    /// Notes progress.
    pub(crate) fn restart(&mut self) {
        self.since = now();
    }

    /// Gives other threads the processor, and returns an error once there was no progress for the limit.
    pub(crate) fn wait(&self, what: impl FnOnce() -> String) -> Result<(), String> {
        if self.since.elapsed() > self.limit {
            return Err(format!("no progress for {} s: {}", self.limit.as_secs(), what()));
        }
        std::thread::yield_now();
        Ok(())
    }
}
