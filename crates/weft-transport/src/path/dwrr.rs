//! Dynamic weighted round robin (STELLAR, section 7.2, after Kwon, Lee and Rho 1998): turns in proportion to weights
//! that follow measurements.
//!
//! Kwon et al. weight queues by their length; STELLAR gives no weights for paths. Here a path's weight is the inverse
//! of its queueing delay: its smoothed round-trip time above that of the best path, halved at the queueing delay of
//! `half_weight_packets` ([`DwrrConfig`]) packets. A path with a queue fifteen times that long gets
//! no turn at all. With 4 paths few stay in use, as STELLAR reports of its DWRR; `experiments/stellar-fig9` and
//! `stellar-fig10a` vary it. Unmeasured paths weigh as much as the best, and the connection probes those that get no
//! turn.
//!
//! Turns are interleaved: [`MAX_WEIGHT`] passes make a cycle, and a path of weight `w` has a turn in `w` of them,
//! evenly spaced. Weights are recomputed at the end of a pass once there was a selection for each path, which makes the
//! work of a selection constant.

use alloc::vec;
use alloc::vec::Vec;

use weft_units::{ByteCount, Instant, Rng};

use super::{Candidates, Feedback, PathId, PathPolicy, Paths};
use crate::TransportConfig;
use crate::config::{Range, Settings};

/// DWRR's parameters. Neither STELLAR (section 7.2) nor Kwon et al. (1998) gives weights for paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct DwrrConfig {
    /// A path has half its weight where its queueing delay exceeds the best path's by the transmission time of this
    /// many packets, 1 to 1000. A smaller value is sharper: fewer paths stay in use.
    pub half_weight_packets: u16,
}

impl Default for DwrrConfig {
    fn default() -> Self {
        Self { half_weight_packets: 2 }
    }
}

impl Settings for DwrrConfig {
    fn ranges(&self) -> Vec<Range> {
        let packets = self.half_weight_packets.into();
        vec![("dwrr.half_weight_packets", packets, 1, 1000, "1 to 1000 packets")]
    }
}

/// The number of passes in a cycle, and the weight of the best path.
const MAX_WEIGHT: u8 = 8;

/// Maximum number of turns that closed paths lose before a random open path is selected.
const MAX_TRIES: u32 = 4;

/// Minimum number of selections between two computations of the weights, however few the paths.
const WEIGH_EVERY: u16 = 32;

/// The policy: gives turns by weight.
#[derive(Debug)]
pub struct Policy {
    /// The maximum queueing delay of a path of weight `w` or more, at `w - 1`, nanoseconds.
    max_queueing: [u32; MAX_WEIGHT as usize],
    /// The paths in use, heaviest first. Empty until first used.
    in_use: Vec<PathId>,
    /// One past the last path of weight `w` or more in `in_use`, at `w`.
    end_of: [u16; MAX_WEIGHT as usize + 1],
    /// The weight of each path.
    weights: Vec<u8>,
    pass: u8,
    /// The weight of the paths that have their turns now.
    weight: u8,
    /// The index in `in_use` of the next of them.
    next: u16,
    /// Number of selections since the weights were computed.
    selections: u16,
}

/// Returns `true` if a path of this weight has a turn in this pass: `weight` of [`MAX_WEIGHT`] passes, evenly spaced.
const fn has_turn(weight: u8, pass: u8) -> bool {
    (pass + 1) * weight / MAX_WEIGHT > pass * weight / MAX_WEIGHT
}

/// Returns the maximum queueing delay, in nanoseconds, at which `MAX_WEIGHT * half / (half + queueing)` still rounds to
/// `weight`.
fn max_queueing(weight: u64, half_weight_ns: u64) -> u32 {
    let full = u64::from(MAX_WEIGHT);
    let queueing = half_weight_ns.saturating_mul(2 * full + 1 - 2 * weight) / (2 * weight - 1);
    u32::try_from(queueing).unwrap_or(u32::MAX)
}

impl Policy {
    pub(super) fn new(config: &TransportConfig) -> Self {
        let half = u64::from(config.dwrr.half_weight_packets);
        let packets = ByteCount(u64::from(config.mtu) * half);
        let half_weight_ns = config.line_rate.serialization_delay(packets).as_nanos();
        Self {
            max_queueing: [1, 2, 3, 4, 5, 6, 7, 8].map(|w| max_queueing(w, half_weight_ns)),
            in_use: Vec::new(),
            end_of: [0; MAX_WEIGHT as usize + 1],
            weights: Vec::new(),
            pass: 0,
            weight: MAX_WEIGHT,
            next: 0,
            selections: 0,
        }
    }

    /// Returns the weight at a queueing delay: [`MAX_WEIGHT`] without queueing, half of it at the half weight's
    /// queueing, and so on; rounded.
    #[inline]
    fn weight_at(&self, queueing_ns: u64) -> u8 {
        self.max_queueing.iter().map(|&limit| u8::from(queueing_ns <= u64::from(limit))).sum()
    }

    /// Computes the weights from the smoothed round-trip times and sorts the paths by them.
    fn weigh(&mut self, paths: &Paths) {
        let up = || paths.ids().filter(|&path| paths.is_up(path));
        let best = up().filter_map(|path| paths.rtt(path)).min();
        self.selections = 0;
        self.weights.clear();
        self.end_of = [0; MAX_WEIGHT as usize + 1];
        for path in paths.ids() {
            let weight = match (paths.is_up(path), paths.rtt(path).zip(best)) {
                (false, _) => 0,
                (true, None) => MAX_WEIGHT,
                (true, Some((rtt, best))) => self.weight_at(rtt.saturating_sub(best).as_nanos()),
            };
            self.weights.push(weight);
            self.end_of[usize::from(weight)] += 1;
        }
        for weight in (1..usize::from(MAX_WEIGHT)).rev() {
            self.end_of[weight] += self.end_of[weight + 1];
        }
        self.in_use.clear();
        self.in_use.resize(usize::from(self.end_of[1]), PathId::default());
        let mut place = [0; MAX_WEIGHT as usize + 2];
        place[1..=usize::from(MAX_WEIGHT)].copy_from_slice(&self.end_of[1..]);
        for (path, &weight) in paths.ids().zip(&self.weights).filter(|&(_, &weight)| weight > 0) {
            let first_of_weight = &mut place[usize::from(weight) + 1];
            self.in_use[usize::from(*first_of_weight)] = path;
            *first_of_weight += 1;
        }
    }

    /// Returns the path whose turn it is, open or not.
    #[inline]
    fn next_turn(&mut self, paths: &Paths) -> PathId {
        while self.next == self.end_of[usize::from(self.weight)] {
            self.weight -= 1;
            while self.weight > 0 && !has_turn(self.weight, self.pass) {
                self.weight -= 1;
            }
            if self.weight == 0 {
                self.begin_pass(paths);
            } else {
                self.next = self.end_of[usize::from(self.weight) + 1];
            }
        }
        let path = self.in_use[usize::from(self.next)];
        self.next += 1;
        path
    }

    fn begin_pass(&mut self, paths: &Paths) {
        if self.selections >= paths.count().max(WEIGH_EVERY) || self.in_use.is_empty() {
            self.weigh(paths);
        }
        self.pass = (self.pass + 1) % MAX_WEIGHT;
        self.weight = MAX_WEIGHT;
        self.next = 0;
    }
}

impl PathPolicy for Policy {
    #[inline]
    fn select(&mut self, paths: &Candidates<'_>, _now: Instant, rng: &mut Rng) -> Option<PathId> {
        self.selections = self.selections.saturating_add(1);
        for _ in 0..MAX_TRIES {
            let path = self.next_turn(paths);
            if paths.is_open(path) {
                return Some(path);
            }
        }
        paths.open_from(paths.draw(rng))
    }

    fn on_feedback(&mut self, _path: PathId, _feedback: Feedback, _paths: &Paths, _now: Instant) {}

    fn compares_paths(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use weft_units::{BitRate, Duration, Seed};

    use super::*;

    /// Packets of 1250 bytes at 10 Gb/s take 1 us, so half the weight is at 2 us.
    fn config() -> TransportConfig {
        TransportConfig {
            mtu: 1250,
            line_rate: BitRate::gbps(10).expect("not zero"),
            ..TransportConfig::stellar()
        }
    }

    fn turns(micros: &[u64], selections: usize) -> Vec<u16> {
        let mut paths = Paths::new(u16::try_from(micros.len()).unwrap(), 1250, Instant::EPOCH);
        for (path, &micros) in paths.ids().zip(micros) {
            paths.sample_rtt(path, Duration::from_micros(micros));
        }
        let mut policy = Policy::new(&config());
        let mut rng = Seed(1).rng();
        (0..selections)
            .map(|_| {
                policy.select(&paths.candidates(), Instant::EPOCH, &mut rng).expect("all open").0
            })
            .collect()
    }

    #[test]
    fn weight_halves_at_two_packets_of_queue_and_ends_past_thirty() {
        let policy = Policy::new(&config());
        let weights = [0, 2, 6, 14, 30, 31].map(|micros| policy.weight_at(micros * 1000));
        assert_eq!(weights, [8, 4, 2, 1, 1, 0]);
    }

    #[test]
    fn a_weight_of_n_has_n_turns_in_a_cycle() {
        for weight in 0..=MAX_WEIGHT {
            let turns = (0..MAX_WEIGHT).filter(|&pass| has_turn(weight, pass)).count();
            assert_eq!(turns, usize::from(weight));
        }
    }

    #[test]
    fn turns_are_proportional_and_interleaved() {
        // The weights are 8, 4 and 2: of 14 turns, 8, 4 and 2.
        let turns = turns(&[10, 12, 16], 14 * 100);
        let mut count = vec![0; 3];
        turns.iter().for_each(|&path| count[usize::from(path)] += 1);
        assert_eq!(count, [800, 400, 200]);
        let longest = turns.chunk_by(|a, b| a == b).map(<[u16]>::len).max();
        assert_eq!(longest, Some(2));
    }

    #[test]
    fn sharper_weights_leave_fewer_paths_in_use() {
        let weights = |half_weight_packets| {
            let dwrr = DwrrConfig { half_weight_packets };
            let policy = Policy::new(&TransportConfig { dwrr, ..config() });
            [0, 2, 8, 16].map(|micros| policy.weight_at(micros * 1000))
        };
        assert_eq!([1, 2, 8].map(weights), [[8, 3, 1, 0], [8, 4, 2, 1], [8, 6, 4, 3]]);
    }

    #[test]
    fn a_path_far_behind_gets_no_turn() {
        assert!(!turns(&[10, 10, 42], 1000).contains(&2));
    }
}
