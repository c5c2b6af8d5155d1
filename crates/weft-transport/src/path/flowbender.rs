//! FlowBender (Kabbani et al., CoNEXT 2014): one path, left for a random one when too many of a round trip's ACKs
//! report marks, or when a packet times out. Instead of marks it may use round trips, as on Hopper's testbed
//! ([`FlowBenderConfig`]).

use alloc::vec;
use alloc::vec::Vec;

use weft_units::{Duration, Instant, Rng};

use super::marked_flow::MarkedFlow;
use super::{Candidates, Feedback, PathId, PathPolicy, Paths};
use crate::TransportConfig;
use crate::config::{Range, Settings};

/// FlowBender's parameters. Its thresholds are the paper's (Kabbani et al., CoNEXT 2014).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct FlowBenderConfig {
    /// `true` counts ACKs of the path that was left for the new one, as in the published algorithm, which counts all
    /// ACKs of a connection in a round trip.
    pub stale_marks: bool,
    /// An ACK counts as marked when its round trip exceeds this percentage of `base_rtt`; zero uses congestion marks.
    /// In Hopper's testbed FlowBender used round trips (its section 4.2.1).
    pub rtt_percent: u16,
}

impl Settings for FlowBenderConfig {
    fn ranges(&self) -> Vec<Range> {
        vec![("flowbender.rtt_percent", self.rtt_percent.into(), 0, 10_000, "0 to 10000 per cent")]
    }
}

/// T: a round trip is congested when more than this part of its ACKs are marked, per cent. This and the next value are
/// the paper's.
const MARKED_PERCENT: u32 = 5;

/// N: the number of consecutive congested round trips after which the flow moves.
const CONGESTED_ROUNDS: u8 = 1;

/// The policy: moves away from marks.
#[derive(Debug)]
pub struct Policy {
    flow: MarkedFlow,
    /// The round-trip time above which an ACK counts as marked; `None` uses congestion marks.
    congested_rtt: Option<Duration>,
}

impl Policy {
    pub(super) fn new(config: &TransportConfig) -> Self {
        let FlowBenderConfig { stale_marks, rtt_percent } = config.flowbender;
        let congested_rtt = config.base_rtt * u64::from(rtt_percent) / 100;
        Self {
            flow: MarkedFlow::new(config).with_stale_marks(stale_marks),
            congested_rtt: (rtt_percent > 0).then_some(congested_rtt),
        }
    }
}

impl PathPolicy for Policy {
    #[inline(never)]
    fn select(&mut self, paths: &Candidates<'_>, now: Instant, rng: &mut Rng) -> Option<PathId> {
        self.flow.select(paths, now, rng)
    }

    #[inline(never)]
    fn on_feedback(&mut self, path: PathId, feedback: Feedback, paths: &Paths, now: Instant) {
        let feedback = match (feedback, self.congested_rtt) {
            (Feedback::Acked { rtt, .. }, Some(limit)) => {
                Feedback::Acked { marked: rtt.is_some_and(|rtt| rtt > limit), rtt }
            }
            (feedback, _) => feedback,
        };
        self.flow.on_feedback(path, feedback, paths, now, |share| share.exceeds(MARKED_PERCENT));
        if self.flow.congested_rounds() >= CONGESTED_ROUNDS {
            self.flow.leave(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    const RTT: Duration = Duration::from_micros(10);

    struct Flow {
        policy: Policy,
        paths: Paths,
        rng: Rng,
        now: Instant,
    }

    impl Flow {
        fn new() -> Self {
            Self::with(FlowBenderConfig::default())
        }

        fn with(flowbender: FlowBenderConfig) -> Self {
            let config =
                TransportConfig { base_rtt: RTT, flowbender, ..TransportConfig::stellar() };
            Self {
                policy: Policy::new(&config),
                paths: Paths::new(8, 1000, Instant::EPOCH),
                rng: Seed(1).rng(),
                now: Instant::EPOCH + RTT,
            }
        }

        fn path(&mut self) -> PathId {
            self.policy.select(&self.paths.candidates(), self.now, &mut self.rng).expect("all open")
        }

        /// Runs a round trip of a hundred ACKs on the current path, of which the first `marked` are marked; returns the
        /// path after it.
        fn round(&mut self, marked: u32) -> PathId {
            let path = self.path();
            for ack in 0..100 {
                self.now += RTT / 100;
                let feedback = Feedback::Acked { marked: ack < marked, rtt: None };
                self.policy.on_feedback(path, feedback, &self.paths, self.now);
            }
            self.path()
        }
    }

    #[test]
    fn more_than_five_per_cent_of_marks_in_one_round_trip_move_the_flow() {
        let mut flow = Flow::new();
        let first = flow.path();
        assert_eq!(flow.round(0), first);
        assert_eq!(flow.round(5), first, "5 % is not more than 5 %");
        let second = flow.round(6);
        assert_ne!(second, first);
        assert_ne!(flow.round(100), second);
    }

    #[test]
    fn marks_of_the_path_that_was_left_do_not_move_it_again() {
        let mut flow = Flow::new();
        let first = flow.path();
        let second = flow.round(100);
        for _ in 0..300 {
            flow.now += RTT / 100;
            let marked = Feedback::Acked { marked: true, rtt: None };
            flow.policy.on_feedback(first, marked, &flow.paths, flow.now);
        }
        assert_eq!(flow.path(), second);
    }

    /// The published algorithm counts every ACK of a round trip, whatever path its packet took.
    #[test]
    fn where_stale_marks_count_they_move_it_again() {
        let mut flow =
            Flow::with(FlowBenderConfig { stale_marks: true, ..FlowBenderConfig::default() });
        let first = flow.path();
        let second = flow.round(100);
        for _ in 0..101 {
            flow.now += RTT / 100;
            let marked = Feedback::Acked { marked: true, rtt: None };
            flow.policy.on_feedback(first, marked, &flow.paths, flow.now);
        }
        assert_ne!(flow.path(), second);
    }

    #[test]
    fn it_can_use_round_trips_instead_of_marks() {
        let mut flow =
            Flow::with(FlowBenderConfig { rtt_percent: 250, ..FlowBenderConfig::default() });
        let mut round = |micros, marked| {
            let path = flow.path();
            for _ in 0..100 {
                flow.now += RTT / 100;
                let rtt = Some(Duration::from_micros(micros));
                let feedback = Feedback::Acked { marked, rtt };
                flow.policy.on_feedback(path, feedback, &flow.paths, flow.now);
            }
            flow.path() != path
        };
        assert!(!round(25, true), "25 us are not more than 2.5 times 10, and marks are ignored");
        assert!(round(26, false));
    }

    #[test]
    fn a_timeout_moves_it_at_once() {
        let mut flow = Flow::new();
        let first = flow.path();
        flow.policy.on_feedback(first, Feedback::TimedOut, &flow.paths, flow.now);
        assert_ne!(flow.path(), first);
    }
}
