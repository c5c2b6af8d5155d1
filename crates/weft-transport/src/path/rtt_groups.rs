//! RTT-aware packet spraying in groups (BIFROST, section 4.1): the `top_k` paths with the lowest smoothed round-trip
//! times take turns, one group of `spray_unit` packets each.
//!
//! Paths are ranked again after every round of groups (or several, if groups are small), and at once when a chosen path
//! fails. A path that was never measured ranks first, so each is tried; the connection probes the idle ones. When the
//! windows of all chosen paths are full the connection waits for them and does not use a worse path: their windows
//! admit packets (BIFROST, appendix D).

use alloc::vec::Vec;

use weft_units::{Instant, Rng};

use super::{Candidates, Feedback, PathId, PathPolicy, Paths};
use crate::TransportConfig;

/// Minimum number of packets between two rankings; one for each path if those are more.
const RANK_EVERY: u16 = 32;

/// The policy: takes turns among the best paths.
#[derive(Debug)]
pub struct Policy {
    top_k: usize,
    /// Number of groups sent between two rankings.
    groups: u16,
    groups_left: u16,
    /// The chosen paths; empty until first used.
    chosen: Vec<PathId>,
    /// The index in `chosen` of the next path.
    next: usize,
    /// Scratch space for ranking.
    ranking: Vec<(u64, u16, PathId)>,
}

impl Policy {
    pub(super) fn new(config: &TransportConfig) -> Self {
        let top_k = config.top_k.clamp(1, config.paths.max(1));
        // A ranking scans all paths, so it must not be done for every packet if groups are small.
        let packets = config.paths.max(RANK_EVERY);
        let groups = top_k.max(packets.div_ceil(config.spray_unit.max(1)));
        Self {
            top_k: top_k.into(),
            groups,
            groups_left: 0,
            chosen: Vec::new(),
            next: 0,
            ranking: Vec::new(),
        }
    }

    fn rank(&mut self, paths: &Paths, rng: &mut Rng) {
        // Equal paths (mainly unmeasured ones) are ordered from a random start.
        let start = paths.draw(rng).0;
        self.ranking.clear();
        self.ranking.extend(paths.ids().filter(|&path| paths.is_up(path)).map(|path| {
            let rtt = paths.rtt(path).map_or(0, |rtt| rtt.as_nanos());
            let from_start = if path.0 < start { path.0 + paths.count() } else { path.0 };
            (rtt, from_start, path)
        }));
        if self.ranking.len() > self.top_k {
            self.ranking.select_nth_unstable(self.top_k - 1);
            self.ranking.truncate(self.top_k);
        }
        self.ranking.sort_unstable();
        self.chosen.clear();
        self.chosen.extend(self.ranking.iter().map(|&(_, _, path)| path));
        self.groups_left = self.groups;
        self.next = 0;
    }

    /// Returns the first open path of those chosen, starting with the one whose turn it is.
    #[inline]
    fn next_open(&mut self, paths: &Candidates<'_>) -> Option<PathId> {
        for _ in 0..self.chosen.len() {
            let path = self.chosen[self.next];
            self.next = if self.next + 1 == self.chosen.len() { 0 } else { self.next + 1 };
            if paths.is_open(path) {
                return Some(path);
            }
        }
        None
    }
}

impl PathPolicy for Policy {
    #[inline]
    fn select(&mut self, paths: &Candidates<'_>, _now: Instant, rng: &mut Rng) -> Option<PathId> {
        if self.groups_left == 0 {
            self.rank(paths, rng);
        }
        self.groups_left -= 1;
        let mut found = self.next_open(paths);
        if found.is_none() && self.chosen.iter().any(|&path| !paths.is_up(path)) {
            self.rank(paths, rng);
            found = self.next_open(paths);
        }
        if found.is_none() && !paths.will_open(&self.chosen) {
            found = paths.open_from(paths.draw(rng));
        }
        found
    }

    fn on_feedback(&mut self, _path: PathId, _feedback: Feedback, _paths: &Paths, _now: Instant) {}

    fn compares_paths(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use weft_units::{Duration, Seed};

    use super::*;

    fn select(policy: &mut Policy, paths: &Paths, groups: usize) -> Vec<PathId> {
        let mut rng = Seed(9).rng();
        (0..groups)
            .map_while(|_| policy.select(&paths.candidates(), Instant::EPOCH, &mut rng))
            .collect()
    }

    fn measured(micros: [u64; 8]) -> Paths {
        let mut paths = Paths::new(8, 1440, Instant::EPOCH);
        for (path, micros) in paths.ids().zip(micros) {
            paths.sample_rtt(path, Duration::from_micros(micros));
        }
        paths
    }

    #[test]
    fn the_four_lowest_of_eight_take_turns() {
        let paths = measured([80, 10, 70, 20, 60, 30, 50, 40]);
        let mut policy = Policy::new(&TransportConfig::bifrost());
        let turns = select(&mut policy, &paths, 8);
        assert_eq!(turns, [1, 3, 5, 7, 1, 3, 5, 7].map(PathId));
    }

    #[test]
    fn a_path_that_got_worse_is_out_after_the_round() {
        let mut paths = measured([80, 10, 70, 20, 60, 30, 50, 40]);
        let mut policy = Policy::new(&TransportConfig::bifrost());
        select(&mut policy, &paths, 1);
        for _ in 0..30 {
            paths.sample_rtt(PathId(3), Duration::from_micros(500));
        }
        let turns = select(&mut policy, &paths, 7);
        assert_eq!(turns, [3, 5, 7, 1, 5, 7, 6].map(PathId));
    }

    #[test]
    fn unmeasured_paths_come_before_measured_ones() {
        let mut paths = Paths::new(8, 1440, Instant::EPOCH);
        for path in paths.ids().take(5) {
            paths.sample_rtt(path, Duration::from_micros(10));
        }
        let mut policy = Policy::new(&TransportConfig::bifrost());
        let turns: BTreeSet<_> = select(&mut policy, &paths, 3).into_iter().collect();
        assert_eq!(turns, BTreeSet::from([5, 6, 7].map(PathId)));
    }

    #[test]
    fn full_windows_are_waited_for_and_failed_paths_are_not() {
        let mut paths = measured([80, 10, 70, 20, 60, 30, 50, 40]);
        let mut policy = Policy::new(&TransportConfig::bifrost());
        for path in [1, 3, 5, 7].map(PathId) {
            paths.set_window(path, 1440);
            paths.state_mut(path).in_flight = 1440;
        }
        assert_eq!(select(&mut policy, &paths, 1), []);
        paths.set_up(PathId(3), false);
        assert_eq!(select(&mut policy, &paths, 1), [PathId(6)]);
    }
}
