//! Smoothed round-trip time and its variation over all paths of a connection (RFC 6298).

use weft_units::Duration;

use crate::Retransmission;

/// An estimator of the time until an ACK.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrip {
    smoothed: Duration,
    variation: Duration,
}

impl RoundTrip {
    /// Adds a sample, with gains 1/8 and 1/4 (RFC 6298, section 2).
    #[inline]
    pub(crate) fn sample(&mut self, rtt: Duration) {
        if self.smoothed == Duration::ZERO {
            self.smoothed = rtt;
            self.variation = rtt / 2;
        } else {
            let error = self.smoothed.abs_diff(rtt);
            self.variation = (self.variation * 3 + error) / 4;
            self.smoothed = (self.smoothed * 7 + rtt) / 8;
        }
    }

    /// Initialises the estimator from another connection to the same peer, if this one has no sample (RFC 9040, section
    /// 3).
    pub(crate) fn seed(&mut self, other: Self) {
        if self.smoothed == Duration::ZERO {
            *self = other;
        }
    }

    /// Returns the smoothed round-trip time; zero until measured.
    pub(crate) fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// Returns the time that a packet sent once may stay unacknowledged, at least `least`. `wait` is the longest time
    /// that the peer may hold an ACK back.
    ///
    /// A constant round trip has no variation left, and any queue would then cause a timeout: RFC 6298, section 2.3,
    /// adds at least the clock's granularity, here a quarter of the round trip.
    pub(crate) fn timeout(
        &self,
        min: Duration,
        config: &Retransmission,
        wait: Duration,
    ) -> Duration {
        let variation = (self.variation * 4).max(self.smoothed / 4);
        let measured = self.smoothed + variation + wait;
        measured.clamp(min, config.rto_max)
    }

    /// Returns the silence after which a loss is assumed, where the peer may hold an ACK back for `wait` and the
    /// variation counts for at most `max_variation`; `None` until a round trip was measured.
    pub(crate) fn silence(&self, wait: Duration, max_variation: Duration) -> Option<Duration> {
        let measured = self.smoothed > Duration::ZERO;
        let variation = (self.variation * 4).min(max_variation);
        measured.then(|| self.smoothed + self.smoothed.max(variation) + wait)
    }

    /// Returns the time that a packet may be overtaken by packets of other paths before it is lost (RFC 8985:
    /// `reo_wnd`). The multiplier grows with each spurious retransmission.
    pub(crate) fn reordering_window(
        &self,
        config: &Retransmission,
        reordering_multiplier: u8,
    ) -> Duration {
        self.smoothed + self.variation * 4 + config.reorder_bound * u64::from(reordering_multiplier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TransportConfig;

    #[test]
    fn the_timeout_starts_at_the_minimum_and_doubles_for_bifrost() {
        let config = TransportConfig::bifrost().retransmission;
        let rtt = RoundTrip::default();
        // 4 ms, 8 ms, 16 ms (BIFROST, section 4.3).
        let first = rtt.timeout(config.rto_min, &config, Duration::ZERO);
        let timeouts: Vec<_> = (0..3).map(|n| config.backed_off(first, n)).collect();
        assert_eq!(timeouts, [4, 8, 16].map(Duration::from_millis));
        assert_eq!(config.backed_off(first, 200), config.rto_max);
    }

    #[test]
    fn the_timeout_stays_at_250_us_for_stellar() {
        let config = TransportConfig::stellar().retransmission;
        let mut rtt = RoundTrip::default();
        (0..20).for_each(|_| rtt.sample(Duration::from_micros(12)));
        let first = rtt.timeout(config.rto_min, &config, Duration::ZERO);
        assert_eq!(config.backed_off(first, 3), Duration::from_micros(250));
    }

    #[test]
    fn a_constant_round_trip_leaves_room_for_a_queue() {
        let config = TransportConfig::stellar().retransmission;
        let mut rtt = RoundTrip::default();
        (0..100).for_each(|_| rtt.sample(Duration::from_micros(400)));
        let timeout = rtt.timeout(config.rto_min, &config, Duration::ZERO);
        assert_eq!(timeout, Duration::from_micros(500));
    }

    #[test]
    fn a_slow_network_lengthens_it() {
        let config = TransportConfig::stellar().retransmission;
        let mut rtt = RoundTrip::default();
        rtt.sample(Duration::from_micros(400));
        // First sample R: smoothed R, variation R/2, timeout R + 4 * R/2 (RFC 6298, 2.2).
        assert_eq!(
            rtt.timeout(config.rto_min, &config, Duration::ZERO),
            Duration::from_micros(1200)
        );
    }
}
