use std::path::Path;

use weft_units::Seed;

use super::*;
use crate::{Report, Scenario, run, run_watched};

const INCAST: &str = r#"
    topology = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 4 }
    queue = { limit = "40KB" }
    measure = { flows = true }
    [[workload]]
    kind = "incast"
    size = "300KB"
    [[fault]]
    kind = "loss"
    links = "uplinks"
    probability = 0.01
    at = "10us"
    duration = "30us"
"#;

fn watched(text: &str, interval: u64) -> (Report, Timeline) {
    let scenario = Scenario::parse(text, Path::new("")).unwrap();
    let mut timeline = Timeline::new(SimSpan::from_picos(interval));
    let report = run_watched(&scenario, Seed(1), &mut None, &mut timeline).unwrap();
    assert_eq!(report.to_json(), run(&scenario, Seed(1)).unwrap().to_json(), "it only watches");
    (report, timeline)
}

#[test]
fn the_cells_agree_with_the_report_and_the_report_with_one_of_a_run_that_nobody_watches() {
    let (report, timeline) = watched(INCAST, 1_000_000);
    let topology = Scenario::parse(INCAST, Path::new("")).unwrap().build_topology().unwrap();
    let totals = timeline.totals();
    for (kind, tier) in &report.ports.tiers {
        let links = topology.link_ids();
        let of_kind = links.filter(|&link| crate::measure::kind_of_port(&topology, link) == *kind);
        let loads = of_kind.map(|link| {
            let bits = topology.link(link).rate.as_bps() as f64 * report.simulated_us / 1e6;
            totals[link.index()] as f64 * 8.0 / bits
        });
        let mean = loads.sum::<f64>() / tier.links as f64;
        // The report's measurement begins when hosts have accepted their first packets already.
        let tolerance = if kind == "host-up" { 0.05 } else { 0.002 };
        assert!((mean - tier.mean).abs() <= tolerance * tier.mean, "{kind}: {mean}, {tier:?}");
    }
    let cells = || timeline.cells.iter();
    let refused: u64 = cells().map(|cell| u64::from(cell.refused)).sum();
    assert_eq!(refused, report.network.lost["queue_full"]);
    assert!(refused > 0, "{report:?}");
    let lost = |index: usize| timeline.columns.iter().map(|it| it.lost[index]).sum::<u64>();
    for (index, reason) in Loss::ALL.iter().enumerate() {
        assert_eq!(lost(index), report.network.lost[reason.name()], "{reason:?}");
    }
    let retransmissions: u64 = timeline.columns.iter().map(|it| it.retransmissions).sum();
    assert!(retransmissions > 0);
    let marked: u64 = cells().map(|cell| u64::from(cell.marked)).sum();
    assert_eq!(marked, report.network.marked);
    let faults: Vec<&str> = timeline.faults().iter().map(|(_, name)| name.as_str()).collect();
    assert!(faults.contains(&"loss begins: leaf 8 → spine 10"), "{faults:?}");
    assert!(faults.contains(&"loss ends: leaf 8 → spine 10"), "{faults:?}");
}

#[test]
fn merged_columns_have_the_same_sums_and_maxima_in_bounded_memory() {
    let (_, fine) = watched(INCAST, 1_000_000);
    let scenario = Scenario::parse(INCAST, Path::new("")).unwrap();
    let mut few = FewColumns(Timeline::new(SimSpan::from_picos(1_000_000)));
    run_watched(&scenario, Seed(1), &mut None, &mut few).unwrap();
    let coarse = few.0;
    assert!(fine.columns.len() > 32, "{}", fine.columns.len());
    assert!((4..=8).contains(&coarse.columns.len()), "{}", coarse.columns.len());
    assert_eq!(coarse.cells.len(), coarse.columns.len() * coarse.links);
    assert_eq!(coarse.totals(), fine.totals());
    assert_eq!(coarse.columns.last().unwrap().end, fine.columns.last().unwrap().end);
    let ends: Vec<_> = coarse.columns.iter().map(|column| column.end).collect();
    assert!(ends.is_sorted_by(|a, b| a < b), "{ends:?}");
    let lost = |it: &Timeline| it.columns.iter().flat_map(|column| column.lost).sum::<u64>();
    assert_eq!(lost(&coarse), lost(&fine));
}

/// A timeline of at most eight columns.
struct FewColumns(Timeline);

impl Watcher for FewColumns {
    fn on_start(&mut self, world: &World) {
        self.0.on_start(world);
        self.0.max_columns = 8;
    }

    fn on_window(&mut self, window: &Window<'_>) {
        self.0.on_window(window);
    }

    fn on_end(&mut self, network: &Network, ended_at: SimTime) {
        self.0.on_end(network, ended_at);
    }
}

#[test]
fn every_message_is_counted_and_the_largest_and_slowest_are_kept() {
    let text = r#"
        topology = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 4 }
        [[workload]]
        kind = "ring-all-reduce"
        size = "1MB"
    "#;
    let (report, timeline) = watched(text, 1_000_000);
    assert!(report.finished);
    // Eight hosts in a ring send 2 (N - 1) messages each, and none is a flow of the report. The run ends when the last
    // eight are delivered, before their senders know.
    assert_eq!(timeline.messages().count(), 8 * 14 - 8);
    assert_eq!(timeline.messages().slowest().count(), 100);
    let took: Vec<_> =
        timeline.messages().slowest().map(|it| it.acknowledged.since(it.submitted)).collect();
    assert!(took.is_sorted_by(|a, b| a >= b), "{took:?}");
}
