//! The shortest round trip.

use weft_units::{Duration, Instant};

/// The shortest round trip of the last 10 to 20 s, of the longer requests only: a short one takes less time, and would make a
/// stream of long ones look as if it queued.
#[derive(Debug, Default)]
pub(super) struct BaseRtt {
    /// The shortest round trips of this epoch and of the one before, ns.
    shortest: [Option<u64>; 2],
    /// The end of this epoch.
    until: Option<Instant>,
    /// The longest request in bytes.
    longest: u64,
}

impl BaseRtt {
    const EPOCH: Duration = Duration::from_secs(10);

    /// Returns it in ns; `None` before the first sample.
    pub(super) fn get(&self) -> Option<u64> {
        self.shortest.into_iter().flatten().min()
    }

    /// Adds the round trip of a request of `len` bytes.
    pub(super) fn on_sample(&mut self, now: Instant, nanos: u64, len: u64) {
        if len > 2 * self.longest {
            *self = Self { longest: len, ..Self::default() };
        }
        self.longest = self.longest.max(len);
        if 2 * len < self.longest || len == 0 {
            return;
        }
        if self.until.is_none_or(|until| until <= now) {
            self.shortest = [None, self.shortest[0]];
            self.until = Some(now + Self::EPOCH);
        }
        let shortest = &mut self.shortest[0];
        *shortest = Some(shortest.map_or(nanos, |least| least.min(nanos)));
    }
}
