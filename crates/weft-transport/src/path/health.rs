//! Path health: probing of paths that are down, and of idle ones under policies that compare paths (BIFROST, section
//! 4.1). It is common to all policies.

use alloc::vec::Vec;

use weft_units::{Duration, Instant};

use super::PathId;

/// The probing of one path.
#[derive(Clone, Copy, Debug)]
struct Watch {
    path: PathId,
    /// The times at which the outstanding probes left, latest first. A probe whose answer takes longer than the wait is
    /// still outstanding when the next leaves: a path may be slower than the probe interval, and work.
    sent_at: [Option<Instant>; MAX_OUTSTANDING],
    /// The time at which the next probe leaves.
    next_at: Instant,
    /// The wait until the probe after the next.
    wait: Duration,
}

/// An answered probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) path: PathId,
    /// The time at which the probe left.
    pub(crate) sent_at: Instant,
}

/// The probes of one connection.
#[derive(Debug, Default)]
pub(crate) struct Health {
    watches: Vec<Watch>,
}

/// Maximum number of outstanding probes of a path whose answers count: as the waits double, they span 15 times the
/// first.
const MAX_OUTSTANDING: usize = 4;

impl Health {
    /// Begins to probe `path`; the first probe leaves at `first`, the next, if it is not answered, `wait` later.
    pub(crate) fn watch(&mut self, path: PathId, first: Instant, wait: Duration) {
        if !self.is_watched(path) {
            self.watches.push(Watch {
                path,
                sent_at: [None; MAX_OUTSTANDING],
                next_at: first,
                wait,
            });
        }
    }

    /// Stops probing `path`.
    pub(crate) fn forget(&mut self, path: PathId) {
        self.watches.retain(|watch| watch.path != path);
    }

    /// Has the next probe of a path that is probed leave at `next_at`, the one after it `wait` later.
    pub(crate) fn reschedule(&mut self, path: PathId, next_at: Instant, wait: Duration) {
        if let Some(watch) = self.watches.iter_mut().find(|watch| watch.path == path) {
            (watch.next_at, watch.wait) = (next_at, wait);
        }
    }

    pub(crate) fn is_watched(&self, path: PathId) -> bool {
        self.watches.iter().any(|watch| watch.path == path)
    }

    /// Returns the number of paths being probed.
    pub(crate) fn count(&self) -> usize {
        self.watches.len()
    }

    /// Returns the time at which the next probe leaves.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.watches.iter().map(|watch| watch.next_at).min()
    }

    /// Returns `true` if a probe must be sent.
    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.watches.iter().any(|watch| watch.next_at <= now)
    }

    /// Returns a path whose probe leaves now with this timestamp, and `true` if the probe before it was not answered.
    /// The wait doubles each time, up to `max_wait`.
    pub(crate) fn pop_due(
        &mut self,
        now: Instant,
        stamp: Instant,
        max_wait: Duration,
    ) -> Option<(PathId, bool)> {
        let watch = self.watches.iter_mut().find(|watch| watch.next_at <= now)?;
        let unanswered = watch.sent_at[0].is_some();
        watch.sent_at.rotate_right(1);
        watch.sent_at[0] = Some(stamp);
        watch.next_at = now + watch.wait;
        watch.wait = (watch.wait * 2).min(watch.wait.max(max_wait));
        Some((watch.path, unanswered))
    }

    /// Ends the probing of `path` on an answer that echoes this timestamp; `None` if it is not of an outstanding probe.
    pub(crate) fn on_answer(&mut self, path: PathId, echo: u32) -> Option<Answer> {
        let index = self.watches.iter().position(|watch| watch.path == path)?;
        let mut outstanding = self.watches[index].sent_at.into_iter().flatten();
        let sent_at = outstanding.find(|at| at.to_wire() == echo)?;
        self.watches.swap_remove(index);
        Some(Answer { path, sent_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(1);

    #[test]
    fn probes_of_a_dead_path_slow_down_and_an_echo_of_long_ago_is_no_answer() {
        let mut health = Health::default();
        let mut now = Instant::from_nanos(1_000);
        let path = PathId(3);
        health.watch(path, now, INTERVAL);
        let mut waits = Vec::new();
        let mut stamps = Vec::new();
        for probe in 0..8 {
            assert_eq!(health.pop_due(now, now, INTERVAL * 16), Some((path, probe > 0)));
            stamps.push(now.to_wire());
            let next = health.next().unwrap();
            waits.push(next.since(now).as_nanos() / 1_000_000);
            now = next;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 16, 16, 16]);
        assert_eq!(health.on_answer(path, stamps[3]), None);
        assert_eq!(health.on_answer(PathId(4), stamps[7]), None);
        let answer = health.on_answer(path, stamps[4]).unwrap();
        assert_eq!((answer.path, answer.sent_at.to_wire()), (path, stamps[4]));
        assert_eq!((health.next(), health.on_answer(path, stamps[7])), (None, None));
    }
}
