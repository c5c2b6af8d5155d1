//! Detection of silence in the network, for controls that react to it and not to each timeout.

use weft_units::{Duration, Instant};

/// Number of round trips without an ACK after which a timeout is due to the network and not to one path.
const ROUND_TRIPS: u64 = 4;

/// A detector that stores the time of the last ACK, or of the last silence that was counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    last_ack_at: Instant,
}

impl Silence {
    /// Creates a detector without any silence.
    pub(super) const fn new() -> Self {
        Self { last_ack_at: Instant::EPOCH }
    }

    /// Processes an ACK.
    #[inline]
    pub(super) fn on_ack(&mut self, now: Instant) {
        self.last_ack_at = self.last_ack_at.max(now);
    }

    /// Processes a packet's timeout. Returns `true` if no ACK came for [`ROUND_TRIPS`] of `round_trip`: once for each
    /// such silence, as packets time out together.
    pub(super) fn on_timeout(&mut self, now: Instant, round_trip: Duration) -> bool {
        let silent = now.since(self.last_ack_at) >= round_trip * ROUND_TRIPS;
        if silent {
            self.last_ack_at = now;
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
