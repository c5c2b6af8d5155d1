//! PLB, protective load balancing (Qureshi et al., SIGCOMM 2022): one path, left for a random one after several
//! consecutive congested round trips, preferably in a pause of the flow, when nothing can be reordered.
//!
//! The constants are those of Linux (`tcp_plb_*`). There a timeout also disables PLB for a minute, because TCP's own
//! timeout has already changed the path; here the timeout changes it, and path health keeps the flow off a dead path.

use weft_units::{Instant, Rng};

use super::marked_flow::MarkedFlow;
use super::{Candidates, Feedback, PathId, PathPolicy, Paths};
use crate::TransportConfig;

/// K: a round trip is congested when at least half of its ACKs are marked.
const MARKED_PERCENT: u32 = 50;

/// Number of consecutive congested round trips after which the flow moves in its next pause.
const ROUNDS_TO_PAUSE: u8 = 3;

/// Number of consecutive congested round trips after which it moves, pause or not.
const ROUNDS_TO_FORCE: u8 = 12;

/// The policy: moves in pauses, or when it must.
#[derive(Debug)]
pub struct Policy {
    flow: MarkedFlow,
}

impl Policy {
    pub(super) fn new(config: &TransportConfig) -> Self {
        Self { flow: MarkedFlow::new(config) }
    }
}

impl PathPolicy for Policy {
    #[inline(never)]
    fn select(&mut self, paths: &Candidates<'_>, now: Instant, rng: &mut Rng) -> Option<PathId> {
        let pauses = |path| paths.in_flight(path) == 0;
        if self.flow.congested_rounds() >= ROUNDS_TO_PAUSE && self.flow.path().is_some_and(pauses) {
            self.flow.leave(now);
        }
        self.flow.select(paths, now, rng)
    }

    #[inline(never)]
    fn on_feedback(&mut self, path: PathId, feedback: Feedback, paths: &Paths, now: Instant) {
        self.flow.on_feedback(path, feedback, paths, now, |share| share.reaches(MARKED_PERCENT));
        if self.flow.congested_rounds() >= ROUNDS_TO_FORCE {
            self.flow.leave(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_units::{Duration, Seed};

    use super::*;

    const RTT: Duration = Duration::from_micros(10);

    struct Flow {
        policy: Policy,
        paths: Paths,
        rng: Rng,
        now: Instant,
    }

    impl Flow {
        /// Returns a flow with a packet in flight on its first path.
        fn started() -> (Self, PathId) {
            let config = TransportConfig { base_rtt: RTT, ..TransportConfig::stellar() };
            let mut flow = Self {
                policy: Policy::new(&config),
                paths: Paths::new(8, 1000, Instant::EPOCH),
                rng: Seed(2).rng(),
                now: Instant::EPOCH + RTT,
            };
            let path = flow.path();
            flow.paths.state_mut(path).in_flight = 1000;
            (flow, path)
        }

        fn path(&mut self) -> PathId {
            self.policy.select(&self.paths.candidates(), self.now, &mut self.rng).expect("all open")
        }

        /// Runs round trips of ten ACKs, of which `marked` are marked.
        fn rounds(&mut self, rounds: u32, marked: u32) {
            let path = self.policy.flow.path().expect("started");
            for ack in 0..rounds * 10 {
                self.now += RTT / 10;
                let feedback = Feedback::Acked { marked: ack % 10 < marked, rtt: None };
                self.policy.on_feedback(path, feedback, &self.paths, self.now);
            }
        }
    }

    #[test]
    fn three_congested_round_trips_move_a_flow_in_its_next_pause_only() {
        let (mut flow, first) = Flow::started();
        flow.rounds(3, 5);
        assert_eq!(flow.path(), first, "packets are in flight");
        flow.paths.state_mut(first).in_flight = 0;
        assert_ne!(flow.path(), first);
    }

    #[test]
    fn two_are_not_enough_and_a_clean_one_begins_the_count_again() {
        let (mut flow, first) = Flow::started();
        flow.rounds(2, 10);
        flow.rounds(1, 4);
        flow.rounds(2, 10);
        flow.paths.state_mut(first).in_flight = 0;
        assert_eq!(flow.path(), first);
    }

    #[test]
    fn twelve_move_it_whatever_is_in_flight() {
        let (mut flow, first) = Flow::started();
        flow.rounds(11, 10);
        assert_eq!(flow.path(), first);
        flow.rounds(1, 10);
        assert_ne!(flow.path(), first);
    }

    #[test]
    fn a_timeout_moves_it_at_once() {
        let (mut flow, first) = Flow::started();
        flow.policy.on_feedback(first, Feedback::TimedOut, &flow.paths, flow.now);
        assert_ne!(flow.path(), first);
    }
}
