//! The guarantees of every policy in the table, and what each policy is for.

use super::*;
use crate::path::Kind;

fn config(kind: Kind) -> TransportConfig {
    TransportConfig { policy: kind, ..TransportConfig::stellar() }
}

impl Fabric {
    fn of(kind: Kind, count: u16, seed: u64) -> Self {
        Self::new(&config(kind), count, seed)
    }
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
    assert_eq!(comparing, [&Kind::Dwrr, &Kind::BestRtt, &Kind::RttGroups, &Kind::ShortestQueue]);
}

/// Returns `true` for policies that send a flow's packets on one path until there is a reason to leave it.
fn keeps_to_one(kind: Kind) -> bool {
    matches!(kind, Kind::Single | Kind::Hopper | Kind::FlowBender | Kind::Plb)
}

#[test]
fn only_open_paths_are_chosen_whatever_happens() {
    for &kind in Kind::ALL {
        for seed in 0..60 {
            chooses_open_paths(&config(kind), seed, kind == Kind::Single);
        }
    }
}

#[test]
fn a_path_that_is_down_is_left_at_once_and_taken_again_when_it_returns() {
    for &kind in Kind::ALL {
        let (mut fabric, dead) = leaves_a_path_that_is_down(&config(kind));

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
        tries_all_when_all_are_down(&config(kind));
    }
}

#[test]
fn every_policy_but_single_spreads_over_several_paths() {
    for &kind in Kind::ALL {
        let mut fabric = Fabric::of(kind, 8, 2);
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
        let mut fabric = Fabric::of(kind, 128, 3);
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
        let mut fabric = Fabric::of(kind, 128, 4);
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
    let page = include_str!("../../../../../CONTRIBUTING.md").replace("\n   ", "\n");
    let (code, _) =
        include_str!("../strack.rs").split_once("\n#[cfg(test)]").expect("it has tests");
    assert!(page.contains(code.trim()), "show strack.rs as it is");
    let table = include_str!("../mod.rs");
    let (_, shown) = page.split_once("```diff\n").expect("the row");
    let (shown, _) = shown.split_once("```").expect("ends");
    let mut lines = shown.lines();
    assert!(lines.all(|line| table.contains(line.trim_start_matches('+'))), "{shown}");
}
