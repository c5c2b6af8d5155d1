//! The shortest round trip.

use weft_units::{Duration, Instant};

/// The shortest round trip of the last 10 to 20 s, of the longer requests only: a short one takes less time, and would make a
/// stream of long ones look as if it queued.
#[derive(Debug, Default)]
pub(super) struct BaseRtt {
    /// This epoch, and the one before.
    epochs: [Epoch; 2],
    /// The end of this epoch.
    until: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Epoch {
    /// The shortest round trip in ns.
    shortest: Option<u64>,
    /// The longest request in bytes.
    longest: u64,
}

impl BaseRtt {
    const EPOCH: Duration = Duration::from_secs(10);

    /// Returns the shortest round trip in ns; `None` before the first sample.
    pub(super) fn get(&self) -> Option<u64> {
        self.epochs.iter().filter_map(|epoch| epoch.shortest).min()
    }

    /// Adds the round trip of a request of `len` bytes.
    pub(super) fn on_sample(&mut self, now: Instant, nanos: u64, len: u64) {
        if len == 0 {
            return;
        }
        if let Some(until) = self.until.filter(|until| *until <= now) {
            let before = if now < until + Self::EPOCH { self.epochs[0] } else { Epoch::default() };
            self.epochs = [Epoch::default(), before];
            self.until = None;
        }
        self.until.get_or_insert(now + Self::EPOCH);
        let longest = self.epochs[0].longest.max(self.epochs[1].longest);
        if len > 2 * longest {
            self.epochs = [Epoch::default(); 2];
        }
        let epoch = &mut self.epochs[0];
        epoch.longest = epoch.longest.max(len);
        if 2 * len >= longest {
            epoch.shortest = Some(epoch.shortest.map_or(nanos, |least| least.min(nanos)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that remain after samples at seconds, with round trips in ns and lengths.
    fn base(samples: &[(u64, u64, u64)]) -> Option<u64> {
        let mut base = BaseRtt::default();
        for &(second, nanos, len) in samples {
            base.on_sample(Instant::EPOCH + Duration::from_secs(second), nanos, len);
        }
        base.get()
    }

    #[test]
    fn the_shortest_of_the_last_epochs_counts() {
        assert_eq!(base(&[]), None);
        assert_eq!(base(&[(0, 50, 4096), (1, 40, 4096), (2, 60, 4096)]), Some(40));
        assert_eq!(base(&[(1, 40, 4096), (12, 60, 4096)]), Some(40), "the epoch before");
        assert_eq!(base(&[(1, 40, 4096), (12, 60, 4096), (23, 70, 4096)]), Some(60));
        assert_eq!(base(&[(1, 40, 4096), (100, 60, 4096)]), Some(60), "idle for long");
    }

    #[test]
    fn short_requests_count_once_the_long_ones_are_old() {
        assert_eq!(base(&[(1, 40, 4096), (2, 30, 1024)]), Some(40), "the short one is no measure");
        assert_eq!(base(&[(1, 30, 1024), (2, 40, 4096)]), Some(40), "of what is longer now");
        let old = (1, 40, 4096);
        assert_eq!(base(&[old, (12, 90, 1024), (23, 80, 1024)]), Some(80), "the path is longer");
        assert_eq!(base(&[(1, 40, 0)]), None);
    }
}
