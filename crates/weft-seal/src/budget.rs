//! The limit on key exchanges that unauthenticated peers can make this end compute.

use weft_units::Instant;

/// Maximum number of exchanges of requests per second, which take a third of a core. Requests beyond it are dropped;
/// their senders retransmit.
const MAX_PER_SECOND: u64 = 2_000;

/// Maximum burst of exchanges after a pause.
const MAX_BURST: u64 = 2_048;

/// A token bucket.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Number of exchanges that may be computed now.
    left: u64,
    /// The time up to which it was filled.
    filled: Instant,
}

impl Budget {
    pub(crate) const fn new() -> Self {
        Self { left: MAX_BURST, filled: Instant::EPOCH }
    }

    /// Adds the exchanges that have accrued until `now`.
    #[inline]
    pub(crate) fn fill(&mut self, now: Instant) {
        if self.left >= MAX_BURST {
            self.filled = now;
            return;
        }
        const NANOS_EACH: u64 = 1_000_000_000 / MAX_PER_SECOND;
        let due = now.since(self.filled).as_nanos() / NANOS_EACH;
        if due > 0 {
            self.left = MAX_BURST.min(self.left + due);
            self.filled = now;
        }
    }

    /// Takes one exchange; returns `false` if none is left.
    pub(crate) fn take(&mut self) -> bool {
        let is_left = self.left > 0;
        self.left -= u64::from(is_left);
        is_left
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Duration;

    use super::*;

    #[test]
    fn exchanges_of_unauthenticated_peers_are_limited_per_second() {
        let mut budget = Budget::new();
        let mut now = Instant::EPOCH;
        let mut taken = 0_u64;
        for _ in 0..3_000 {
            now += Duration::from_millis(1);
            budget.fill(now);
            taken += (0..100).filter(|_| budget.take()).count() as u64;
        }
        assert_eq!(taken, MAX_BURST + 3 * MAX_PER_SECOND - 2);
    }
}
