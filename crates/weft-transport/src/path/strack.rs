//! STrack's adaptive spray (Le et al., arXiv 2407.15266): the path selection of that transport. Every path in turn,
//! with a bit for each that marks it as congested. A path whose bit is set is skipped once, which clears the bit, so it
//! gets one packet less for each mark and needs no other memory.
//!
//! A loss or a timeout sets the bit too. STrack's window and its reliability are implemented elsewhere.

use alloc::vec::Vec;

use weft_units::{Instant, Rng};

use super::{Candidates, Feedback, PathId, PathPolicy, Paths};
use crate::TransportConfig;

/// The policy: takes turns and skips congested paths.
#[derive(Debug)]
pub struct Policy {
    /// One bit per path. Empty until first used.
    congested: Vec<u64>,
    next: PathId,
}

/// Returns the word and the mask of a path's bit.
fn bit(path: PathId) -> (usize, u64) {
    (usize::from(path.0 / 64), 1 << (path.0 % 64))
}

impl Policy {
    pub(super) fn new(_config: &TransportConfig) -> Self {
        Self { congested: Vec::new(), next: PathId::default() }
    }

    /// Clears the bit of a path; returns `true` if it was set.
    fn take(&mut self, path: PathId) -> bool {
        let (word, bit) = bit(path);
        let was = self.congested[word] & bit != 0;
        self.congested[word] &= !bit;
        was
    }
}

impl PathPolicy for Policy {
    #[inline(never)]
    fn select(&mut self, paths: &Candidates<'_>, _now: Instant, rng: &mut Rng) -> Option<PathId> {
        if self.congested.is_empty() {
            self.congested.resize(usize::from(paths.count()).div_ceil(64), 0);
            self.next = paths.draw(rng);
        }
        // One round clears every bit, so that the second one selects a path.
        for _ in 0..=paths.count() {
            let path = paths.open_from(self.next)?;
            self.next = paths.after(path);
            if !self.take(path) {
                return Some(path);
            }
        }
        paths.open_from(self.next)
    }

    #[inline(never)]
    fn on_feedback(&mut self, path: PathId, feedback: Feedback, _paths: &Paths, _now: Instant) {
        let clean = matches!(feedback, Feedback::Acked { marked: false, .. });
        let (word, bit) = bit(path);
        if let Some(bits) = self.congested.get_mut(word).filter(|_| !clean) {
            *bits |= bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    const MARKED: Feedback = Feedback::Acked { marked: true, rtt: None };
    const CLEAN: Feedback = Feedback::Acked { marked: false, rtt: None };

    fn turn(policy: &mut Policy, paths: &Paths, packets: usize) -> Vec<u16> {
        let mut rng = Seed(1).rng();
        let mut next =
            || policy.select(&paths.candidates(), Instant::EPOCH, &mut rng).expect("all open").0;
        (0..packets).map(|_| next()).collect()
    }

    fn started(count: u16) -> (Policy, Paths) {
        let paths = Paths::new(count, 1000, Instant::EPOCH);
        let mut policy = Policy::new(&TransportConfig::stellar());
        turn(&mut policy, &paths, 1);
        policy.next = PathId(0);
        (policy, paths)
    }

    #[test]
    fn a_marked_path_loses_one_turn_for_each_time_it_was_found_marked() {
        let (mut policy, paths) = started(4);
        assert_eq!(turn(&mut policy, &paths, 8), [0, 1, 2, 3, 0, 1, 2, 3]);
        for feedback in [MARKED, MARKED, CLEAN] {
            policy.on_feedback(PathId(2), feedback, &paths, Instant::EPOCH);
        }
        policy.on_feedback(PathId(0), Feedback::Lost, &paths, Instant::EPOCH);
        assert_eq!(turn(&mut policy, &paths, 6), [1, 3, 0, 1, 2, 3]);
    }

    #[test]
    fn where_every_path_is_marked_they_take_turns_all_the_same() {
        let (mut policy, paths) = started(70);
        paths.ids().for_each(|path| policy.on_feedback(path, MARKED, &paths, Instant::EPOCH));
        let sent = turn(&mut policy, &paths, 70);
        assert_eq!(sent, (0..70).collect::<Vec<_>>());
    }
}
