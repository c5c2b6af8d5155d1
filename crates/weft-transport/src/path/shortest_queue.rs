//! The shortest queue among a few random paths of those in use (join the shortest queue of d choices; Mitzenmacher
//! 2001), for units of several packets and paths that differ.
//!
//! The queue of a path is what waits there for this connection: its bytes in flight times its smoothed round-trip time.
//! So each path in use is busy as long as anything is in flight, and a slower one has fewer bytes. Random choices keep
//! units from all taking the path that was free last. A path that loses packets has few bytes in flight and would attract
//! the next ones, so recent losses lengthen its queue.
//!
//! [`top_k`](TransportConfig::top_k) paths are in use at a time. Two of them may share all their links, and some links may
//! have none: now and then another path replaces the worst one, if it is better.

use alloc::vec::Vec;

use weft_units::{Instant, Rng};

use super::{Candidates, Feedback, PathId, PathPolicy, Paths};
use crate::TransportConfig;

/// Number of paths compared for each unit. With two, a flow over four slow paths takes 1.1 times as long as with four.
const CHOICES: usize = 4;

/// Number of units between two replacements.
const REPLACE_EVERY: u8 = 16;

/// Number of packets that a path must deliver before a loss is forgotten, and at most for any number of losses.
const FORGOTTEN_AFTER: u16 = 64;
const ALL_FORGOTTEN_AFTER: u16 = 256;

/// Number of those packets that count as one more delay of the path: a loss makes its queue 9 times as long.
const PACKETS_PER_DELAY: u64 = 8;

/// The policy: compares a few paths for every unit.
#[derive(Debug)]
pub struct Policy {
    top_k: usize,
    base_rtt_ns: u64,
    /// The paths in use; empty until first used.
    used: Vec<PathId>,
    /// Number of units until the next replacement.
    units_left: u8,
    /// For each path, the number of packets that it must still deliver; empty until a packet is lost.
    owed: Vec<u16>,
}

impl Policy {
    pub(super) fn new(config: &TransportConfig) -> Self {
        Self {
            top_k: config.top_k.clamp(1, config.paths.max(1)).into(),
            base_rtt_ns: config.base_rtt.as_nanos(),
            used: Vec::new(),
            units_left: REPLACE_EVERY,
            owed: Vec::new(),
        }
    }

    /// Returns the path's round trip, at least that of the empty network, in units of 1/[`PACKETS_PER_DELAY`] ns; longer after
    /// losses.
    #[inline]
    fn delay(&self, path: PathId, paths: &Paths) -> u64 {
        let delay = paths.rtt(path).map_or(0, |rtt| rtt.as_nanos()).max(self.base_rtt_ns);
        let owed = self.owed.get(usize::from(path.0)).map_or(0, |&owed| u64::from(owed));
        delay * (PACKETS_PER_DELAY + owed)
    }

    /// Returns the queue of the path with one packet more, for comparisons.
    #[inline]
    fn queue(&self, path: PathId, paths: &Paths) -> u64 {
        u64::from(paths.in_flight(path) + paths.mtu).saturating_mul(self.delay(path, paths))
    }

    /// Returns the open path with the shortest queue among a few random ones in use, or any open one in use.
    #[inline]
    fn next_open(&self, paths: &Candidates<'_>, rng: &mut Rng) -> Option<PathId> {
        let mut drawn = [PathId(0); CHOICES];
        for path in &mut drawn {
            *path = self.used[rng.index(self.used.len())];
        }
        let is_open = |path: &PathId| paths.is_open(*path);
        let shortest =
            drawn.into_iter().filter(is_open).min_by_key(|&path| self.queue(path, paths));
        shortest.or_else(|| self.used.iter().copied().find(is_open))
    }

    /// Adds paths that are up, from a random one on, until enough are in use.
    #[cold]
    fn fill(&mut self, paths: &Paths, rng: &mut Rng) {
        let start = paths.draw(rng).0;
        for path in (start..paths.count()).chain(0..start).map(PathId) {
            if self.used.len() == self.top_k {
                break;
            }
            if paths.is_up(path) && !self.used.contains(&path) {
                self.used.push(path);
            }
        }
    }

    /// Replaces paths that are down, and the one with the longest delay if a random other path has a shorter one.
    #[cold]
    fn replace(&mut self, paths: &Paths, rng: &mut Rng) {
        self.units_left = REPLACE_EVERY;
        self.used.retain(|&path| paths.is_up(path));
        self.fill(paths, rng);
        let other = paths.draw(rng);
        if self.used.contains(&other) || !paths.is_up(other) {
            return;
        }
        let delays = self.used.iter().map(|&path| self.delay(path, paths));
        if let Some((delay, worst)) = delays.zip(0..).max()
            && self.delay(other, paths) <= delay
        {
            self.used[worst] = other;
        }
    }
}

impl PathPolicy for Policy {
    #[inline]
    fn select(&mut self, paths: &Candidates<'_>, _now: Instant, rng: &mut Rng) -> Option<PathId> {
        if self.units_left == 0 || self.used.is_empty() {
            self.replace(paths, rng);
        }
        self.units_left -= 1;
        let mut found = self.next_open(paths, rng);
        if found.is_none() && self.used.iter().any(|&path| !paths.is_up(path)) {
            self.replace(paths, rng);
            found = self.next_open(paths, rng);
        }
        if found.is_none() && !paths.will_open(&self.used) {
            found = paths.open_from(paths.draw(rng));
        }
        found
    }

    #[inline]
    fn on_feedback(&mut self, path: PathId, feedback: Feedback, paths: &Paths, _now: Instant) {
        match feedback {
            Feedback::Acked { .. } => {
                if let Some(owed) = self.owed.get_mut(usize::from(path.0)) {
                    *owed = owed.saturating_sub(1);
                }
            }
            Feedback::Lost | Feedback::TimedOut => {
                self.owed.resize(paths.count().into(), 0);
                let owed = &mut self.owed[usize::from(path.0)];
                *owed = (*owed + FORGOTTEN_AFTER).min(ALL_FORGOTTEN_AFTER);
            }
            // The queue was full, which the round-trip time says as well.
            Feedback::Trimmed => {}
        }
    }

    fn compares_paths(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use weft_units::{Duration, Seed};

    use super::*;

    const MTU: u16 = 1000;

    fn policy(top_k: u16) -> Policy {
        Policy::new(&TransportConfig { top_k, ..TransportConfig::stellar() })
    }

    /// Returns paths with these round-trip times, microseconds.
    fn measured(micros: &[u64]) -> Paths {
        let mut paths = Paths::new(u16::try_from(micros.len()).expect("few"), MTU, Instant::EPOCH);
        for (path, &rtt) in paths.ids().zip(micros) {
            paths.sample_rtt(path, Duration::from_micros(rtt));
        }
        paths
    }

    /// Sends packets that stay in flight; returns the number on each path.
    fn send(policy: &mut Policy, paths: &mut Paths, packets: usize) -> Vec<u32> {
        let mut rng = Seed(9).rng();
        for _ in 0..packets {
            let path =
                policy.select(&paths.candidates(), Instant::EPOCH, &mut rng).expect("all are open");
            paths.state_mut(path).in_flight += u32::from(MTU);
        }
        paths.ids().map(|path| paths.packets_in_flight(path)).collect()
    }

    #[test]
    fn a_slower_path_has_fewer_packets_in_flight() {
        let mut paths = measured(&[100, 200, 400]);
        let sent = send(&mut policy(3), &mut paths, 700);
        for (sent, share) in sent.iter().zip([400_u32, 200, 100]) {
            assert!(sent.abs_diff(share) < share / 8, "{sent} of {share}");
        }
    }

    #[test]
    fn a_path_that_lost_a_packet_is_avoided_until_it_has_delivered_others() {
        let mut paths = measured(&[100; 4]);
        let mut policy = policy(4);
        policy.on_feedback(PathId(2), Feedback::Lost, &paths, Instant::EPOCH);
        let sent = send(&mut policy, &mut paths, 400);
        assert!(sent[2] * 8 < sent[1], "{sent:?}");
        for _ in 0..FORGOTTEN_AFTER {
            let delivered = Feedback::Acked { marked: false, rtt: None };
            policy.on_feedback(PathId(2), delivered, &paths, Instant::EPOCH);
        }
        let later = send(&mut policy, &mut paths, 400);
        assert!(later[2] > later[1] * 7 / 8, "{later:?}");
    }

    #[test]
    fn better_paths_replace_the_worst_one_at_a_time() {
        let mut paths = measured(&[300, 300, 900, 300, 100, 100, 100, 100]);
        let mut policy = policy(4);
        policy.used = [0, 1, 2, 3].map(PathId).to_vec();
        send(&mut policy, &mut paths, 6 * usize::from(REPLACE_EVERY));
        assert!(!policy.used.contains(&PathId(2)), "{:?}", policy.used);
        send(&mut policy, &mut paths, 60 * usize::from(REPLACE_EVERY));
        let used: BTreeSet<_> = policy.used.iter().map(|path| path.0).collect();
        assert_eq!(used, BTreeSet::from([4, 5, 6, 7]));
    }

    #[test]
    fn full_windows_are_waited_for_and_failed_paths_are_not() {
        let mut paths = measured(&[100; 8]);
        let mut policy = policy(2);
        send(&mut policy, &mut paths, 1);
        for &path in &policy.used {
            paths.set_window(path, u32::from(MTU));
            paths.state_mut(path).in_flight = u32::from(MTU);
        }
        let mut rng = Seed(1).rng();
        let mut select =
            |paths: &Paths| policy.select(&paths.candidates(), Instant::EPOCH, &mut rng);
        assert_eq!(select(&paths), None);
        let full = paths.ids().find(|&path| paths.in_flight(path) > 0).expect("two are full");
        paths.set_up(full, false);
        assert!(select(&paths).is_some_and(|path| paths.in_flight(path) == 0));
    }
}
