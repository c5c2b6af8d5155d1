//! The suspension of a path that may be dead: it carries no new packets until it responds or is down.
//!
//! A packet of it is missing although packets sent later on other paths were acknowledged, and so is everything sent on
//! it since. The path is dead, or slower than it was. A probe decides: its answer ends the suspension a round trip
//! later, so a wrong suspicion costs one probe and moves a round trip's packets to other paths. If there is no answer
//! while the peer answers on other paths, the path is silent, and what is in flight on it is retransmitted elsewhere.
//!
//! Losses on a suspended path do not tell whether there is congestion: no packet passes a dead path, while most packets
//! pass a queue that overflows. So congestion control is notified of them once the path responds, and never if it is down.

use weft_units::{Duration, Instant};

/// The state of a suspended path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspension {
    /// The time at which the packet was sent that raised the suspicion. Only the acknowledgement of a later one ends
    /// the suspension.
    pub(crate) sent_at: Instant,
    /// The time at which a path like the others would have answered the first probe. The peer works if it sent
    /// anything after that.
    pub(crate) answer_expected: Instant,
    /// The time from which the path is silent, if the peer works.
    answer_due: Instant,
    pub(super) is_silent: bool,
    /// Number of losses that congestion control was not notified of.
    pub(crate) losses: u32,
}

impl Suspension {
    /// Returns the suspension of a path that is probed now and whose answer is expected after `round_trip`, at the
    /// latest after `wait`.
    pub(crate) fn new(
        sent_at: Instant,
        now: Instant,
        round_trip: Duration,
        wait: Duration,
    ) -> Self {
        let (answer_expected, answer_due) = (now + round_trip, now + wait);
        Self { sent_at, answer_expected, answer_due, is_silent: false, losses: 0 }
    }

    /// Processes the time of the latest packet from the peer. Returns `true` if the path has just turned out to be silent.
    pub(crate) fn evaluate(&mut self, received_at: Instant, now: Instant) -> bool {
        let was_silent = self.is_silent;
        self.is_silent |= now >= self.answer_due && received_at >= self.answer_expected;
        self.is_silent && !was_silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_silent_only_if_the_peer_answers_elsewhere() {
        let at = |micros| Instant::EPOCH + Duration::from_micros(micros);
        let micros = Duration::from_micros;
        let mut suspension = Suspension::new(at(0), at(1_000), micros(200), micros(500));
        assert!(!suspension.evaluate(at(1_300), at(1_499)), "too early");
        assert!(!suspension.evaluate(at(1_199), at(9_000)), "the peer is silent on all paths");
        assert!(suspension.evaluate(at(1_200), at(1_500)));
        assert!(!suspension.evaluate(at(1_200), at(1_600)), "known");
    }
}
