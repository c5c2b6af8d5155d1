//! BestRTT (STELLAR, section 7.2): always the path with the lowest smoothed round-trip time.
//!
//! Every sender that measures the same fabric prefers the same path, which is why STELLAR finds that this policy uses
//! few paths and congests them: a property of the policy, not a fault of this implementation.
//!
//! The order is a tournament: each inner node of a binary tree holds the better path of its two children, so a
//! round-trip sample costs one comparison a level (seven for 128 paths) and the best path is at the root. The policy
//! gets no notice of changes to windows and path states; it detects them where the tree is replayed, at the latest
//! after one selection for each path, when the whole tree is.

use alloc::vec::Vec;

use weft_units::{Instant, Rng};

use super::{Candidates, Feedback, PathId, PathPolicy, Paths};
use crate::TransportConfig;

/// Maximum number of replays of a closed path at the root before the whole tree is replayed: one is usual (a window is
/// full, or the packet was just lost there), many mean that most are closed.
const MAX_REPLAYS: u32 = 4;

/// Minimum number of selections in a round.
const MIN_ROUND: u16 = 32;

/// The policy: selects the best path, and unmeasured ones once a round.
#[derive(Debug)]
pub struct Policy {
    /// The inner nodes, the root at 1, the children of `n` at `2n` and `2n + 1`; the leaves, from `winners.len()` on,
    /// are the paths themselves and are not stored. Empty until first used.
    winners: Vec<PathId>,
    /// Number of selections until the whole tree is replayed and unmeasured paths are tried again.
    round_left: u16,
    /// Number of paths not yet checked in this round's search for unmeasured ones.
    unexplored: u16,
    explore_next: PathId,
}

/// Returns the rank of a path; lower is better. Closed paths lose to unmeasured ones, and those to measured ones.
fn rank(paths: &Candidates<'_>, path: PathId) -> u64 {
    if path.0 >= paths.count() || !paths.is_open(path) {
        return u64::MAX;
    }
    paths.rtt(path).map_or(u64::MAX - 1, |rtt| rtt.as_nanos())
}

impl Policy {
    pub(super) fn new(_config: &TransportConfig) -> Self {
        Self { winners: Vec::new(), round_left: 0, unexplored: 0, explore_next: PathId::default() }
    }

    fn begin_round(&mut self, paths: &Candidates<'_>, rng: &mut Rng) {
        if self.winners.is_empty() {
            let leaves = usize::from(paths.count()).next_power_of_two().max(2);
            self.winners = alloc::vec![PathId::default(); leaves];
            self.explore_next = paths.draw(rng);
        }
        self.round_left = paths.count().max(MIN_ROUND);
        self.unexplored = paths.count();
        self.replay_all(paths);
    }

    /// Returns the winner at `node`, which may be a leaf.
    #[inline]
    fn winner(&self, node: usize) -> PathId {
        match node.checked_sub(self.winners.len()) {
            Some(leaf) => PathId(u16::try_from(leaf).expect("at most 4096 paths, doubled")),
            None => self.winners[node],
        }
    }

    fn replay_all(&mut self, paths: &Candidates<'_>) {
        for node in (1..self.winners.len()).rev() {
            let (left, right) = (self.winner(2 * node), self.winner(2 * node + 1));
            let left_wins = rank(paths, left) <= rank(paths, right);
            self.winners[node] = if left_wins { left } else { right };
        }
    }

    /// Replays the matches of one path, leaf to root.
    fn replay(&mut self, path: PathId, paths: &Candidates<'_>) {
        let mut node = self.winners.len() + usize::from(path.0);
        let (mut best, mut best_rank) = (path, rank(paths, path));
        while node > 1 {
            let sibling = self.winner(node ^ 1);
            let sibling_rank = rank(paths, sibling);
            // Equal ranks go to the left child, as in `replay_all`.
            if sibling_rank < best_rank || (sibling_rank == best_rank && node & 1 == 1) {
                (best, best_rank) = (sibling, sibling_rank);
            }
            node /= 2;
            self.winners[node] = best;
        }
    }

    /// Returns the next open path of this round that was never measured.
    fn unmeasured(&mut self, paths: &Candidates<'_>) -> Option<PathId> {
        while self.unexplored > 0 {
            self.unexplored -= 1;
            let path = self.explore_next;
            self.explore_next = paths.after(path);
            if paths.rtt(path).is_none() && paths.is_open(path) {
                return Some(path);
            }
        }
        None
    }
}

impl PathPolicy for Policy {
    #[inline]
    fn select(&mut self, paths: &Candidates<'_>, _now: Instant, rng: &mut Rng) -> Option<PathId> {
        if self.round_left == 0 {
            self.begin_round(paths, rng);
        }
        self.round_left -= 1;
        if let Some(path) = self.unmeasured(paths) {
            return Some(path);
        }
        for _ in 0..MAX_REPLAYS {
            let best = self.winners[1];
            if paths.is_open(best) {
                return Some(best);
            }
            self.replay(best, paths);
        }
        self.replay_all(paths);
        Some(self.winners[1]).filter(|&best| paths.is_open(best))
    }

    #[inline]
    fn on_feedback(&mut self, path: PathId, feedback: Feedback, paths: &Paths, _now: Instant) {
        if matches!(feedback, Feedback::Acked { rtt: Some(_), .. }) && !self.winners.is_empty() {
            self.replay(path, &paths.candidates());
        }
    }

    fn compares_paths(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use weft_units::{Duration, Seed};

    use super::*;

    fn acked(micros: u64) -> Feedback {
        Feedback::Acked { marked: false, rtt: Some(Duration::from_micros(micros)) }
    }

    fn sample(policy: &mut Policy, paths: &mut Paths, path: PathId, micros: u64) {
        paths.sample_rtt(path, Duration::from_micros(micros));
        policy.on_feedback(path, acked(micros), paths, Instant::EPOCH);
    }

    fn measured(count: u16, micros: impl Fn(u16) -> u64) -> (Policy, Paths, Rng) {
        let mut paths = Paths::new(count, 1000, Instant::EPOCH);
        let mut policy = Policy::new(&TransportConfig::stellar());
        let mut rng = Seed(1).rng();
        for _ in 0..count {
            policy.select(&paths.candidates(), Instant::EPOCH, &mut rng).expect("all open");
        }
        for path in paths.ids() {
            sample(&mut policy, &mut paths, path, micros(path.0));
        }
        (policy, paths, rng)
    }

    #[test]
    fn every_path_is_tried_once_before_any_twice() {
        let paths = Paths::new(7, 1000, Instant::EPOCH);
        let mut policy = Policy::new(&TransportConfig::stellar());
        let mut rng = Seed(3).rng();
        let mut tried: Vec<_> = (0..7)
            .filter_map(|_| policy.select(&paths.candidates(), Instant::EPOCH, &mut rng))
            .collect();
        tried.sort_unstable();
        assert_eq!(tried, paths.ids().collect::<Vec<_>>());
    }

    #[test]
    fn the_answer_is_the_lowest_smoothed_rtt_after_every_sample() {
        let (mut policy, mut paths, mut rng) = measured(100, |path| 20 + u64::from(path) % 7);
        for _ in 0..5_000 {
            let path = paths.draw(&mut rng);
            sample(&mut policy, &mut paths, path, 10 + rng.below(40));
            let best =
                policy.select(&paths.candidates(), Instant::EPOCH, &mut rng).expect("all open");
            let lowest = paths.ids().filter_map(|path| paths.rtt(path)).min();
            assert_eq!(paths.rtt(best), lowest);
        }
    }

    #[test]
    fn a_full_window_moves_to_the_second_best_and_back() {
        let (mut policy, mut paths, mut rng) = measured(8, |path| 10 + u64::from(path));
        let mut select = |policy: &mut Policy, paths: &Paths| {
            policy.select(&paths.candidates(), Instant::EPOCH, &mut rng).expect("some are open")
        };
        assert_eq!(select(&mut policy, &paths), PathId(0));
        paths.set_window(PathId(0), 1000);
        paths.state_mut(PathId(0)).in_flight = 1000;
        assert_eq!(select(&mut policy, &paths), PathId(1));
        paths.state_mut(PathId(0)).in_flight = 0;
        sample(&mut policy, &mut paths, PathId(0), 10);
        assert_eq!(select(&mut policy, &paths), PathId(0));
    }

    #[test]
    fn a_path_that_probing_alone_found_better_is_taken_within_a_round() {
        let (mut policy, mut paths, mut rng) = measured(8, |path| 10 + u64::from(path));
        for _ in 0..20 {
            paths.sample_rtt(PathId(5), Duration::from_micros(1));
        }
        let taken: Vec<_> = (0..33)
            .filter_map(|_| policy.select(&paths.candidates(), Instant::EPOCH, &mut rng))
            .collect();
        assert!(taken.contains(&PathId(5)), "{taken:?}");
    }
}
