//! The guarantees of every policy in the table, for any behaviour of its paths.

use std::collections::VecDeque;
use std::vec::Vec;

use weft_units::{Duration, Instant, Rng, Seed};

use super::{Candidates, Feedback, Kind, PathId, PathPolicy, Paths, Policy};
use crate::TransportConfig;

const MTU: u16 = 1000;
const BASE_RTT: Duration = Duration::from_micros(10);

/// A policy, its paths, and a network that acknowledges packets in the order of sending.
struct Fabric {
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
    fn new(kind: Kind, count: u16, seed: u64) -> Self {
        let config = TransportConfig {
            mtu: MTU,
            paths: count,
            policy: kind,
            spray_unit: 1,
            base_rtt: BASE_RTT,
            ..TransportConfig::stellar()
        };
        Self {
            policy: kind.build(&config),
            paths: Paths::new(count, MTU, Instant::EPOCH),
            avoid: None,
            rng: Seed(seed).child(kind.name(), 0).rng(),
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
        assert!(self.is_open(path), "chose {path:?}, which is closed");
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

#[test]
fn every_name_parses_back_and_has_a_description() {
    for &kind in Kind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
        assert_eq!(kind.to_string(), kind.name());
        assert!(kind.name().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'));
        assert!(kind.about().len() > 20 && !kind.about().contains('\n'), "{kind}");
    }
    assert!("spray".parse::<Kind>().unwrap_err().to_string().contains("rtt-groups"));
}

#[test]
fn the_policies_that_compare_paths_are_known() {
    let comparing: Vec<_> = Kind::ALL
        .iter()
        .filter(|kind| kind.build(&TransportConfig::stellar()).compares_paths())
        .collect();
    assert_eq!(comparing, [&Kind::Dwrr, &Kind::BestRtt, &Kind::RttGroups]);
}

/// Returns `true` for policies that send a flow's packets on one path until there is a reason to leave it.
fn keeps_to_one(kind: Kind) -> bool {
    matches!(kind, Kind::Single | Kind::Hopper | Kind::FlowBender | Kind::Plb)
}

/// Paths fail and return, windows close and open, packets are lost, marked and timed out.
#[test]
fn only_open_paths_are_chosen_whatever_happens() {
    for &kind in Kind::ALL {
        for seed in 0..60 {
            let count = [1, 2, 3, 8, 37, 128][usize::try_from(seed % 6).expect("small")];
            let mut fabric = Fabric::new(kind, count, seed);
            let mut rng = Seed(seed).child("operations", 0).rng();
            for step in 0..600 {
                fabric.now += Duration::from_nanos(rng.below(2_000));
                let path = fabric.paths.draw(&mut rng);
                match rng.below(12) {
                    0 => fabric.paths.set_up(path, false),
                    1 => fabric.paths.set_up(path, true),
                    2 => {
                        let packets = u32::try_from(rng.below(4)).expect("small");
                        fabric.paths.state_mut(path).window = packets * u32::from(MTU);
                    }
                    3 => fabric.avoid = Some(path),
                    4 => fabric.avoid = None,
                    5 => fabric.answer(|_, _| Feedback::Lost),
                    6 => fabric.answer(|_, _| Feedback::TimedOut),
                    7 => fabric.answer(|_, _| Feedback::Acked { marked: true, rtt: None }),
                    8 => fabric.answer(|path, _| acked(BASE_RTT * (1 + u64::from(path.0) % 3))),
                    _ => {
                        let chosen = fabric.send();
                        let waits = !fabric.in_flight.is_empty();
                        let none_open = fabric.paths.ids().all(|path| !fabric.is_open(path));
                        let moves = chosen.is_some() || waits || none_open || kind == Kind::Single;
                        assert!(moves, "{kind} stalls: seed {seed}, step {step}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_path_that_is_down_is_left_at_once_and_taken_again_when_it_returns() {
    for &kind in Kind::ALL {
        let mut fabric = Fabric::new(kind, 8, 1);
        fabric.run(400, 32, |_, _| acked(BASE_RTT));
        let dead = fabric.select().expect("all open");
        fabric.paths.set_up(dead, false);
        fabric.in_flight.clear();
        let sent = fabric.run(400, 32, |_, _| acked(BASE_RTT));
        assert_eq!(sent[usize::from(dead.0)], 0, "{kind} still uses {dead:?}");

        // It returns better than the others: a policy that compares paths must use it.
        fabric.paths.set_up(dead, true);
        for _ in 0..40 {
            fabric.paths.sample_rtt(dead, Duration::from_micros(1));
        }
        let sent = fabric.run(2_000, 32, |path, _| {
            acked(if path == dead { Duration::from_micros(1) } else { BASE_RTT })
        });
        // REPS searches for paths only where marks leave it none.
        let explores = !keeps_to_one(kind) && kind != Kind::Reps;
        assert_eq!(sent[usize::from(dead.0)] > 0, explores, "{kind}: {sent:?}");
    }
}

#[test]
fn when_every_path_is_down_all_are_tried() {
    for &kind in Kind::ALL {
        let mut fabric = Fabric::new(kind, 4, 1);
        for path in fabric.paths.ids() {
            fabric.paths.set_up(path, false);
        }
        assert!(fabric.select().is_some(), "{kind}");
    }
}

#[test]
fn every_policy_but_single_spreads_over_several_paths() {
    for &kind in Kind::ALL {
        let mut fabric = Fabric::new(kind, 8, 2);
        // The queue of a path is the data in flight on it: a path used alone becomes the worst.
        let rtt = |path, paths: &Paths| {
            let queue = paths.in_flight(path);
            let rtt = BASE_RTT + Duration::from_nanos(queue.into());
            Feedback::Acked { marked: queue > 16 * u32::from(MTU), rtt: Some(rtt) }
        };
        fabric.run(1_000, 32, rtt);
        // A millisecond has twelve congested round trips, after which PLB moves at the latest.
        let sent = fabric.run(10_000, 32, rtt);
        let used: Vec<_> = (0..8).filter(|&path| sent[path] > 50).collect();
        assert_eq!(used.len() > 1, kind != Kind::Single, "{kind} used {used:?}");
    }
}

#[test]
fn round_robin_and_oblivious_are_even() {
    for (kind, slack) in [(Kind::RoundRobin, 1), (Kind::Oblivious, 130)] {
        let mut fabric = Fabric::new(kind, 128, 3);
        let sent = fabric.run(128_000, 64, |path, _| acked(BASE_RTT * (1 + u64::from(path.0))));
        // Oblivious: a binomial distribution of mean 1000 and deviation 32; four deviations for 128 paths.
        let off = sent.iter().map(|&packets| packets.abs_diff(1000)).max().expect("128 paths");
        assert!(off <= slack, "{kind} is off by {off}");
    }
}

/// STELLAR, section 7.2: "BestRTT and DWRR tended to activate only a small number of paths".
#[test]
fn best_rtt_and_dwrr_concentrate_where_some_paths_are_better() {
    let in_use = |kind| {
        let mut fabric = Fabric::new(kind, 128, 4);
        let rtt = |path: PathId| BASE_RTT + Duration::from_nanos(500) * u64::from(path.0 % 16);
        fabric.run(2_000, 64, |path, _| acked(rtt(path)));
        let sent = fabric.run(128_000, 64, |path, _| acked(rtt(path)));
        sent.iter().filter(|&&packets| packets > 100).count()
    };
    assert_eq!(in_use(Kind::BestRtt), 1);
    let dwrr = in_use(Kind::Dwrr);
    assert!((8..64).contains(&dwrr), "{dwrr} of 128");
    for kind in [Kind::RoundRobin, Kind::Oblivious, Kind::MpRdma] {
        assert_eq!(in_use(kind), 128, "{kind}");
    }
}

#[test]
fn a_policy_by_value_stays_small() {
    // A connection holds one policy, and an idle connection may hold 2 KiB in all.
    assert!(size_of::<Policy>() <= 128, "{} bytes", size_of::<Policy>());
}

#[test]
fn the_example_of_contributing_is_the_code() {
    let page = include_str!("../../../../CONTRIBUTING.md").replace("\n   ", "\n");
    let (code, _) = include_str!("strack.rs").split_once("\n#[cfg(test)]").expect("it has tests");
    assert!(page.contains(code.trim()), "show strack.rs as it is");
    let table = include_str!("mod.rs");
    let (_, shown) = page.split_once("```diff\n").expect("the row");
    let (shown, _) = shown.split_once("```").expect("ends");
    let mut lines = shown.lines();
    assert!(lines.all(|line| table.contains(line.trim_start_matches('+'))), "{shown}");
}
