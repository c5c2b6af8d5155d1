//! DCTCP's estimate of the fraction of packets that carry a congestion mark (RFC 8257, section 3.3), for every
//! controller that uses it.

use super::AckSample;

/// The value one in the fixed point of [`MarkedFraction::alpha`]. Integers make runs identical on all machines.
pub(super) const ONE: u32 = 1 << 20;

/// The estimation gain g = 1/16 (RFC 8257, section 4.2).
const GAIN_SHIFT: u32 = 4;

/// An estimator that counts marks over observation windows of about one round trip and smooths their fraction.
#[derive(Debug)]
pub(super) struct MarkedFraction {
    /// `DCTCP.Alpha`, in units of 1/[`ONE`].
    alpha: u32,
    acked: u32,
    marked: u32,
    /// Bytes to be acknowledged before the observation window ends: the bytes in flight when it began, as
    /// `DCTCP.WindowEnd` is `SND.NXT` then.
    bytes_left: u32,
}

impl MarkedFraction {
    /// Creates an estimator with `alpha` and an observation window of `bytes`.
    pub(super) fn new(alpha: u32, bytes: u32) -> Self {
        Self { alpha, acked: 0, marked: 0, bytes_left: bytes }
    }

    /// Counts an ACK. If it ends the observation window, updates alpha and returns `true` if any packet in the window
    /// was marked.
    #[inline]
    pub(super) fn observe(&mut self, ack: &AckSample) -> Option<bool> {
        self.acked = self.acked.saturating_add(ack.acked_packets);
        self.marked = self.marked.saturating_add(ack.marked_packets.min(ack.acked_packets));
        // Lost packets leave the network without being acknowledged.
        self.bytes_left = self.bytes_left.saturating_sub(ack.acked_bytes).min(ack.in_flight);
        if self.bytes_left > 0 || self.acked == 0 {
            return None;
        }
        let fraction = u64::from(self.marked) * u64::from(ONE) / u64::from(self.acked);
        let fraction = u32::try_from(fraction).expect("at most ONE");
        self.alpha = self.alpha - (self.alpha >> GAIN_SHIFT) + (fraction >> GAIN_SHIFT);
        let any = self.marked > 0;
        (self.acked, self.marked, self.bytes_left) = (0, 0, ack.in_flight);
        Some(any)
    }

    /// Counts a lost packet as a marked one.
    pub(super) fn observe_loss(&mut self) {
        self.acked = self.acked.saturating_add(1);
        self.marked = self.marked.saturating_add(1);
    }

    /// Ends the observation window with the next ACK.
    pub(super) fn end_with_next_ack(&mut self) {
        self.bytes_left = 0;
    }

    /// Returns the smoothed fraction, 0 to [`ONE`].
    pub(super) fn alpha(&self) -> u32 {
        self.alpha
    }
}

/// Returns `bytes * fraction`, with a fraction of at most [`ONE`].
pub(super) fn scale(bytes: u32, fraction: u32) -> u32 {
    let product = u64::from(bytes) * u64::from(fraction.min(ONE)) / u64::from(ONE);
    u32::try_from(product).expect("not more than `bytes`")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8257, section 3.3: `DCTCP.Alpha = DCTCP.Alpha * (1 - g) + g * M`.
    #[test]
    fn alpha_follows_the_recurrence_of_rfc_8257() {
        let mut fraction = MarkedFraction::new(ONE, 0);
        let mut expected = 1.0;
        for marked in [0, 0, 10, 3, 1, 0, 7] {
            let ack = AckSample {
                acked_packets: 10,
                marked_packets: marked,
                in_flight: 0,
                ..AckSample::of_packets(10, 1000)
            };
            assert_eq!(fraction.observe(&ack), Some(marked > 0));
            expected = expected * (15.0 / 16.0) + f64::from(marked) / 10.0 / 16.0;
            let alpha = f64::from(fraction.alpha()) / f64::from(ONE);
            assert!((alpha - expected).abs() < 1e-4, "{alpha}, expected {expected}");
        }
    }

    #[test]
    fn an_observation_window_covers_the_bytes_in_flight_when_it_began() {
        let mut fraction = MarkedFraction::new(0, 10_000);
        let ack = AckSample { in_flight: 20_000, ..AckSample::of_packets(4, 1000) };
        let ends: Vec<_> = (0..8).map(|_| fraction.observe(&ack).is_some()).collect();
        assert_eq!(ends, [false, false, true, false, false, false, false, true]);
    }
}
