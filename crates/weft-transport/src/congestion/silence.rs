//! Silences of the network, for the controls that answer them and not each timeout.

use weft_units::{Duration, Instant};

/// Round trips without an ACK after which a timeout is the network's and not one path's.
const ROUND_TRIPS: u64 = 4;

/// When the last ACK came, or the last silence was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    heard_at: Instant,
}

impl Silence {
    /// None so far.
    pub(super) const fn new() -> Self {
        Self { heard_at: Instant::EPOCH }
    }

    /// An ACK came.
    #[inline]
    pub(super) fn on_ack(&mut self, now: Instant) {
        self.heard_at = self.heard_at.max(now);
    }

    /// A packet timed out. Returns `true` if nothing came for [`ROUND_TRIPS`] of `round_trip`: once for each such
    /// silence, as packets time out together.
    pub(super) fn on_timeout(&mut self, now: Instant, round_trip: Duration) -> bool {
        let silent = now.since(self.heard_at) >= round_trip * ROUND_TRIPS;
        if silent {
            self.heard_at = now;
        }
        silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_of_four_round_trips_counts_once() {
        let (round_trip, mut silence) = (Duration::from_micros(10), Silence::new());
        let at = |micros| Instant::EPOCH + Duration::from_micros(micros);
        silence.on_ack(at(100));
        assert!(!silence.on_timeout(at(139), round_trip));
        assert!(silence.on_timeout(at(140), round_trip));
        assert!(!silence.on_timeout(at(140), round_trip));
        assert!(!silence.on_timeout(at(179), round_trip));
        assert!(silence.on_timeout(at(180), round_trip));
    }
}
