//! MP-RDMA's ACK-clocked virtual paths (Lu et al., NSDI 2018): the path selection of that algorithm.
//!
//! There, the ACK of a packet releases the next packet onto the path that the ACK came from: a whole packet and a
//! little growth if it is unmarked, half a packet if it carries a congestion mark, none if the packet was overtaken by
//! more than the bound on reordering. So a congested path, and one slower than the others, loses packets to them
//! without state per path, and a small share of packets is sent on a random new path to find better ones.
//!
//! Here the window belongs to the congestion control (`congestion/mp_rdma.rs` is MP-RDMA's own), which decides when a
//! packet may leave; this policy decides its path. It keeps the paths that ACKs returned in a queue, oldest first: an
//! unmarked ACK returns its path for one packet, a marked one for half a packet, a loss for none. ACKs of packets
//! overtaken by more than the bound do not reach it. If the queue is empty because the window has grown, the path is
//! that of the last unmarked ACK. It is random before the first ACK, if that path is closed, and for a few units in a
//! thousand ([`MpRdmaConfig`]). With spray units of several packets a path is returned once a
//! unit's worth of its packets was acknowledged, which takes four bytes a path.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use weft_units::{Instant, Rng};

use super::{Candidates, Feedback, PathId, PathPolicy, Paths};
use crate::TransportConfig;
use crate::config::{Range, Settings};

/// MP-RDMA's parameters (Lu et al., NSDI 2018), for the path policy and the congestion control of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct MpRdmaConfig {
    /// The bound on reordering, 1 to 8192 packets: a packet acknowledged after one whose number is higher by more than
    /// this took a path that is too slow. 32 as published.
    pub reordering_bound: u16,
    /// The share of packets sent on a random new path, per mille. One per cent as published.
    pub probe_permille: u16,
}

impl Default for MpRdmaConfig {
    fn default() -> Self {
        Self { reordering_bound: 32, probe_permille: 10 }
    }
}

impl Settings for MpRdmaConfig {
    fn ranges(&self) -> Vec<Range> {
        let (bound, probe) = (self.reordering_bound.into(), self.probe_permille.into());
        vec![
            ("mp_rdma.reordering_bound", bound, 1, 8192, "1 to 8192 packets"),
            ("mp_rdma.probe_permille", probe, 0, 1000, "at most 1000 per mille"),
        ]
    }
}

/// The minimum and maximum of the number of returned paths kept, which is one per path. A longer queue only means that
/// the window shrank since; the oldest entries are then the least useful.
const RETURNED_BOUNDS: (usize, usize) = (16, 256);

/// The policy: reuses paths whose ACKs come back unmarked.
#[derive(Debug)]
pub struct Policy {
    returned: VecDeque<PathId>,
    max_returned: usize,
    /// Number of half packets acknowledged on each path towards its next return.
    earned: Vec<u32>,
    /// Number of half packets in a spray unit.
    half_packets_per_unit: u32,
    /// The path of the last unmarked ACK.
    last: Option<PathId>,
    probe_permille: u16,
    reordering_bound: u16,
}

impl Policy {
    pub(super) fn new(config: &TransportConfig) -> Self {
        Self {
            returned: VecDeque::new(),
            max_returned: usize::from(config.paths).clamp(RETURNED_BOUNDS.0, RETURNED_BOUNDS.1),
            earned: Vec::new(),
            half_packets_per_unit: 2 * u32::from(config.spray_unit.max(1)),
            last: None,
            probe_permille: config.mp_rdma.probe_permille,
            reordering_bound: config.mp_rdma.reordering_bound,
        }
    }
}

impl PathPolicy for Policy {
    #[inline]
    fn select(&mut self, paths: &Candidates<'_>, _now: Instant, rng: &mut Rng) -> Option<PathId> {
        let probe = rng.chance(self.probe_permille.into(), 1000);
        // A probe replaces a returned path, so that new paths do not add to the queue.
        while let Some(path) = self.returned.pop_front() {
            if probe {
                break;
            }
            if paths.is_open(path) {
                return Some(path);
            }
        }
        let previous = self.last.filter(|&path| !probe && paths.is_open(path));
        previous.or_else(|| paths.open_from(paths.draw(rng)))
    }

    #[inline]
    fn on_feedback(&mut self, path: PathId, feedback: Feedback, paths: &Paths, _now: Instant) {
        if self.earned.is_empty() {
            self.earned.resize(usize::from(paths.count()), 0);
        }
        let earned = &mut self.earned[usize::from(path.0)];
        match feedback {
            Feedback::Acked { marked: false, .. } => {
                *earned += 2;
                self.last = Some(path);
            }
            Feedback::Acked { marked: true, .. } => *earned += 1,
            // A lost packet releases no other, and the path loses its credit.
            Feedback::Lost | Feedback::Trimmed | Feedback::TimedOut => *earned = 0,
        }
        if *earned >= self.half_packets_per_unit {
            *earned -= self.half_packets_per_unit;
            if self.returned.len() == self.max_returned {
                self.returned.pop_front();
            }
            self.returned.push_back(path);
        }
    }

    fn reordering_bound(&self) -> u32 {
        self.reordering_bound.into()
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    const CLEAN: Feedback = Feedback::Acked { marked: false, rtt: None };
    const MARKED: Feedback = Feedback::Acked { marked: true, rtt: None };

    /// Sends and acknowledges `count` packets, `window` in flight; returns the number of packets of each path.
    fn ack_clock(
        paths: &Paths,
        window: usize,
        count: usize,
        answer: impl Fn(PathId) -> Feedback,
    ) -> Vec<u32> {
        let mut policy = Policy::new(&TransportConfig::stellar());
        let mut rng = Seed(5).rng();
        let mut in_flight = VecDeque::new();
        let mut sent = alloc::vec![0; usize::from(paths.count())];
        for _ in 0..count {
            while in_flight.len() < window {
                let path =
                    policy.select(&paths.candidates(), Instant::EPOCH, &mut rng).expect("all open");
                sent[usize::from(path.0)] += 1;
                in_flight.push_back(path);
            }
            let path = in_flight.pop_front().expect("window is not zero");
            policy.on_feedback(path, answer(path), paths, Instant::EPOCH);
        }
        sent
    }

    #[test]
    fn a_path_whose_acks_are_marked_loses_its_packets_to_the_others() {
        let paths = Paths::new(8, 1000, Instant::EPOCH);
        let sent = ack_clock(&paths, 64, 20_000, |path| if path.0 < 4 { MARKED } else { CLEAN });
        let congested: u32 = sent[..4].iter().sum();
        let clean: u32 = sent[4..].iter().sum();
        // Random probes still reach the congested half: one in a hundred, half of them, and twice because each returns
        // half a packet.
        assert!(congested * 20 < clean, "congested {congested}, clean {clean}");
        assert!(sent.iter().all(|&packets| packets > 0), "{sent:?}");
    }

    #[test]
    fn a_unit_of_several_packets_is_returned_after_as_many_acknowledgements() {
        let paths = Paths::new(8, 1000, Instant::EPOCH);
        let config = TransportConfig { spray_unit: 50, ..TransportConfig::bifrost() };
        let mut policy = Policy::new(&config);
        for _ in 0..49 {
            policy.on_feedback(PathId(3), CLEAN, &paths, Instant::EPOCH);
        }
        assert!(policy.returned.is_empty());
        policy.on_feedback(PathId(3), CLEAN, &paths, Instant::EPOCH);
        assert_eq!(policy.returned, [PathId(3)]);
        for _ in 0..100 {
            policy.on_feedback(PathId(5), MARKED, &paths, Instant::EPOCH);
        }
        assert_eq!(policy.returned, [PathId(3), PathId(5)]);
    }
}
