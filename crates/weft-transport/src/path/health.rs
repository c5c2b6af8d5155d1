//! Whether a path carries packets: probing of paths that are down, and of idle ones under policies
//! that compare paths (BIFROST, section 4.1). Shared by every policy.

use alloc::vec::Vec;

use weft_units::{Duration, Instant};

use super::PathId;

/// A path that is being probed.
#[derive(Clone, Copy, Debug)]
struct Watch {
    path: PathId,
    /// When the probe under way left; `None` while none is.
    sent_at: Option<Instant>,
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

/// A path that stays down is probed at most this much less often than at first.
const SLOWEST: u64 = 16;

impl Health {
    /// Begins to probe `path`; the first probe leaves at `first`.
    pub(crate) fn watch(&mut self, path: PathId, first: Instant, interval: Duration) {
        if !self.is_watched(path) {
            self.watches.push(Watch { path, sent_at: None, next_at: first, wait: interval });
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

    /// Takes a path whose probe leaves now with this stamp, and whether the probe before it was
    /// never answered. The wait doubles each time, up to [`SLOWEST`] times `interval`.
    pub(crate) fn pop_due(
        &mut self,
        now: Instant,
        stamp: Instant,
        interval: Duration,
    ) -> Option<(PathId, bool)> {
        let watch = self.watches.iter_mut().find(|watch| watch.next_at <= now)?;
        let unanswered = watch.sent_at.replace(stamp).is_some();
        watch.next_at = now + watch.wait;
        watch.wait = (watch.wait * 2).min(interval * SLOWEST);
        Some((watch.path, unanswered))
    }

    /// A probe of `path` was answered and echoed this stamp; `None` unless it is the one under way.
    pub(crate) fn answered(&mut self, path: PathId, echo: u32) -> Option<Answer> {
        let under_way = |watch: &Watch| {
            watch.path == path && watch.sent_at.is_some_and(|at| at.to_wire() == echo)
        };
        let index = self.watches.iter().position(under_way)?;
        let watch = self.watches.swap_remove(index);
        Some(Answer { path, sent_at: watch.sent_at? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(1);

    #[test]
    fn probes_of_a_dead_path_slow_down_and_an_old_echo_is_no_answer() {
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
        assert_eq!(health.answered(path, stamps[6]), None);
        assert_eq!(health.answered(path, stamps[7]).map(|answer| answer.path), Some(path));
        assert_eq!(health.next(), None);
    }
}
