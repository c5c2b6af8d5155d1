//! The guarantees of every path policy, for any behaviour of its paths: those of the table, and policies that an owner
//! makes itself ([`External`](crate::External)).

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use weft_units::{Duration, Instant, Rng, Seed};

use super::{Candidates, Feedback, PathId, PathPolicy, Paths, Policy};
use crate::TransportConfig;

#[cfg(test)]
mod tests;

const MTU: u16 = 1000;
const BASE_RTT: Duration = Duration::from_micros(10);

/// Checks the policy that `config` makes: it chooses open paths only, leaves a path that goes down at once, and sends
/// when all are down.
///
/// # Panics
/// Panics with the rule that the policy broke.
pub fn check(config: &TransportConfig) {
    for seed in 0..60 {
        chooses_open_paths(config, seed, false);
    }
    leaves_a_path_that_is_down(config);
    tries_all_when_all_are_down(config);
}

/// A policy, its paths, and a network that acknowledges packets in the order of sending.
pub(super) struct Fabric {
    policy: Policy,
    paths: Paths,
    /// The path on which the next packet was lost before.
    avoid: Option<PathId>,
    rng: Rng,
    now: Instant,
    in_flight: VecDeque<PathId>,
}

fn candidates(paths: &Paths, avoid: Option<PathId>) -> Candidates<'_> {
    avoid.map_or_else(|| paths.candidates(), |path| paths.candidates().avoiding(path))
}

impl Fabric {
    fn new(config: &TransportConfig, count: u16, seed: u64) -> Self {
        let config = TransportConfig {
            mtu: MTU,
            paths: count,
            spray_unit: 1,
            base_rtt: BASE_RTT,
            ..config.clone()
        };
        Self {
            policy: config.build_policy(),
            paths: Paths::new(count, MTU, Instant::EPOCH),
            avoid: None,
            rng: Seed(seed).child(config.policy.name(), 0).rng(),
            now: Instant::EPOCH,
            in_flight: VecDeque::new(),
        }
    }

    fn select(&mut self) -> Option<PathId> {
        let paths = candidates(&self.paths, self.avoid);
        self.policy.select(&paths, self.now, &mut self.rng)
    }

    fn is_open(&self, path: PathId) -> bool {
        candidates(&self.paths, self.avoid).is_open(path)
    }

    fn send(&mut self) -> Option<PathId> {
        let path = self.select()?;
        assert!(self.is_open(path), "the policy chose {path:?}, which is closed");
        self.paths.state_mut(path).in_flight += u32::from(MTU);
        self.in_flight.push_back(path);
        Some(path)
    }

    fn answer(&mut self, feedback: impl Fn(PathId, &Paths) -> Feedback) {
        let Some(path) = self.in_flight.pop_front() else { return };
        let feedback = feedback(path, &self.paths);
        self.paths.state_mut(path).in_flight -= u32::from(MTU);
        if let Feedback::Acked { rtt: Some(rtt), .. } = feedback {
            self.paths.sample_rtt(path, rtt);
        }
        self.policy.on_feedback(path, feedback, &self.paths, self.now);
        self.answer_probes();
    }

    /// Answers probes with the round trip of the last packets, or of an empty path.
    fn answer_probes(&mut self) {
        while let Some(path) = self.policy.probe(&self.paths, self.now, &mut self.rng) {
            assert!(self.paths.is_up(path), "probes {path:?}, which is down");
            let rtt = self.paths.rtt(path).unwrap_or(BASE_RTT);
            self.policy.on_feedback(path, acked(rtt), &self.paths, self.now);
        }
    }

    /// Keeps `window` packets in flight until `count` were sent; returns the number of packets of each path.
    fn run(
        &mut self,
        count: usize,
        window: usize,
        feedback: impl Fn(PathId, &Paths) -> Feedback,
    ) -> Vec<u32> {
        let mut sent = vec![0; usize::from(self.paths.count())];
        for _ in 0..count {
            self.now += Duration::from_nanos(100);
            if self.in_flight.len() == window {
                self.answer(&feedback);
            }
            let held = self.policy.holds_until();
            if let Some(path) = self.send() {
                sent[usize::from(path.0)] += 1;
            } else {
                assert!(held.is_some(), "no window closes, some path is up");
            }
        }
        sent
    }
}

fn acked(rtt: Duration) -> Feedback {
    Feedback::Acked { marked: false, rtt: Some(rtt) }
}

/// Paths fail and return, windows close and open, packets are lost, marked and timed out. `may_stall` permits a policy
/// to wait for one path while others are open.
fn chooses_open_paths(config: &TransportConfig, seed: u64, may_stall: bool) {
    let count = [1, 2, 3, 8, 37, 128][usize::try_from(seed % 6).expect("small")];
    let mut fabric = Fabric::new(config, count, seed);
    let mut rng = Seed(seed).child("operations", 0).rng();
    for step in 0..600 {
        fabric.now += Duration::from_nanos(rng.below(2_000));
        let path = fabric.paths.draw(&mut rng);
        match rng.below(13) {
            0 => fabric.paths.set_up(path, false),
            1 => fabric.paths.set_up(path, true),
            2 => {
                let packets = u32::try_from(rng.below(4)).expect("small");
                fabric.paths.set_window(path, packets * u32::from(MTU));
            }
            3 => fabric.avoid = Some(path),
            4 => fabric.avoid = None,
            5 => fabric.answer(|_, _| Feedback::Lost),
            6 => fabric.answer(|_, _| Feedback::TimedOut),
            7 => fabric.answer(|_, _| Feedback::Acked { marked: true, rtt: None }),
            9 => fabric.answer(|_, _| Feedback::Trimmed),
            8 => fabric.answer(|path, _| acked(BASE_RTT * (1 + u64::from(path.0) % 3))),
            _ => {
                let chosen = fabric.send();
                let waits = !fabric.in_flight.is_empty();
                let none_open = fabric.paths.ids().all(|path| !fabric.is_open(path));
                let moves = chosen.is_some() || waits || none_open || may_stall;
                assert!(
                    moves,
                    "the policy returns no path though one is open and nothing is in flight \
                     (policy {}, seed {seed}, step {step})",
                    config.policy
                );
            }
        }
    }
}

/// Returns the fabric with the path that is down.
fn leaves_a_path_that_is_down(config: &TransportConfig) -> (Fabric, PathId) {
    let mut fabric = Fabric::new(config, 8, 1);
    fabric.run(400, 32, |_, _| acked(BASE_RTT));
    let dead = fabric.select().expect("all paths are open, so the policy must return one");
    fabric.paths.set_up(dead, false);
    fabric.in_flight.clear();
    let sent = fabric.run(400, 32, |_, _| acked(BASE_RTT));
    assert_eq!(
        sent[usize::from(dead.0)],
        0,
        "{} still uses {dead:?}, which is down",
        config.policy
    );
    (fabric, dead)
}

fn tries_all_when_all_are_down(config: &TransportConfig) {
    let mut fabric = Fabric::new(config, 4, 1);
    for path in fabric.paths.ids() {
        fabric.paths.set_up(path, false);
    }
    let chosen = fabric.select();
    assert!(chosen.is_some(), "{}: when all paths are down, all count as up", config.policy);
}
