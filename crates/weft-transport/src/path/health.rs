//! Whether a path carries packets: probing of paths that are down, and of idle ones under policies
//! that compare paths (BIFROST, section 4.1). Shared by every policy.

use alloc::vec::Vec;

use weft_units::{Duration, Instant};

use super::PathId;

/// A path that is being probed.
#[derive(Clone, Copy, Debug)]
struct Watch {
    path: PathId,
    /// When the probes under way left, the latest first. One whose answer takes longer than the wait for it is still
    /// under way when the next leaves: a path can be slower than it is probed, and well.
    sent_at: [Option<Instant>; UNDER_WAY],
    /// When the next probe leaves.
    next_at: Instant,
    /// Wait until the one after.
    wait: Duration,
}

/// What an answered probe means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) path: PathId,
    /// When the probe left.
    pub(crate) sent_at: Instant,
}

/// The probes of one connection.
#[derive(Debug, Default)]
pub(crate) struct Health {
    watches: Vec<Watch>,
}

/// Probes of a path whose answers count: with the waits that double they are under way for 15 times the first.
const UNDER_WAY: usize = 4;

/// A path that stays down is probed at most this much less often than at first.
const SLOWEST: u64 = 16;

impl Health {
    /// Begins to probe `path`; the first probe leaves at `first`, the next, if it is not answered, `wait` later.
    pub(crate) fn watch(&mut self, path: PathId, first: Instant, wait: Duration) {
        if !self.is_watched(path) {
            self.watches.push(Watch { path, sent_at: [None; UNDER_WAY], next_at: first, wait });
        }
    }

    pub(crate) fn is_watched(&self, path: PathId) -> bool {
        self.watches.iter().any(|watch| watch.path == path)
    }

    /// How many paths are being probed.
    pub(crate) fn count(&self) -> usize {
        self.watches.len()
    }

    /// When the next probe leaves.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.watches.iter().map(|watch| watch.next_at).min()
    }

    /// Whether a probe is to leave.
    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.watches.iter().any(|watch| watch.next_at <= now)
    }

    /// Takes a path whose probe leaves now with this stamp, and whether the probe before it has not been
    /// answered. The wait doubles each time, up to [`SLOWEST`] times `interval`.
    pub(crate) fn pop_due(
        &mut self,
        now: Instant,
        stamp: Instant,
        interval: Duration,
    ) -> Option<(PathId, bool)> {
        let watch = self.watches.iter_mut().find(|watch| watch.next_at <= now)?;
        let unanswered = watch.sent_at[0].is_some();
        watch.sent_at.rotate_right(1);
        watch.sent_at[0] = Some(stamp);
        watch.next_at = now + watch.wait;
        watch.wait = (watch.wait * 2).min(watch.wait.max(interval * SLOWEST));
        Some((watch.path, unanswered))
    }

    /// A probe of `path` was answered and echoed this stamp; `None` unless it is one that is under way.
    pub(crate) fn answered(&mut self, path: PathId, echo: u32) -> Option<Answer> {
        let index = self.watches.iter().position(|watch| watch.path == path)?;
        let mut under_way = self.watches[index].sent_at.into_iter().flatten();
        let sent_at = under_way.find(|at| at.to_wire() == echo)?;
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
            assert_eq!(health.pop_due(now, now, INTERVAL), Some((path, probe > 0)));
            stamps.push(now.to_wire());
            let next = health.next().unwrap();
            waits.push(next.since(now).as_nanos() / 1_000_000);
            now = next;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 16, 16, 16]);
        assert_eq!(health.answered(path, stamps[3]), None);
        assert_eq!(health.answered(PathId(4), stamps[7]), None);
        let answer = health.answered(path, stamps[4]).unwrap();
        assert_eq!((answer.path, answer.sent_at.to_wire()), (path, stamps[4]));
        assert_eq!((health.next(), health.answered(path, stamps[7])), (None, None));
    }
}
