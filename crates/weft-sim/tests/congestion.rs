//! Congestion controls compared with uet-htsim's public runs of the same flows (`docs/validation.md`): incasts with
//! every control, permutations with the one that real packets have by default. Deterministic.

use std::path::{Path, PathBuf};

use toml::Value;
use weft_sim::{Report, Scenario, run};
use weft_transport::congestion;
use weft_units::Seed;

fn scenario(name: &str) -> Scenario {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let file: PathBuf = folder.join(name);
    let text = std::fs::read_to_string(&file).unwrap();
    Scenario::parse(&text, &folder).unwrap()
}

/// Runs a scenario with another control and policy; all flows finish.
fn run_with(name: &str, congestion: congestion::Kind, others: &[(&str, Value)]) -> Report {
    let mut scenario = scenario(name);
    let settings = &mut scenario.transport.overrides;
    settings.insert("congestion".into(), congestion.name().into());
    settings.extend(others.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    let report = run(&scenario, Seed(1)).unwrap();
    assert!(report.finished, "{name}");
    report
}

/// Asserts that every control keeps the slowest flow of `senders` flows of `bytes` within 1.25 of its fair share of a
/// link of `gbps`, and retransmits at most 5 %.
fn holds_in_incast(name: &str, senders: f64, bytes: f64, gbps: f64) {
    let fair_us = senders * bytes * 8.0 / gbps / 1e3;
    // One that needs telemetry has a window for each path, and is for flows of one path: `telemetry.rs` has it.
    for &congestion in congestion::Kind::ALL.iter().filter(|kind| !kind.needs_telemetry()) {
        let report = run_with(name, congestion, &[]);
        let worst = report.workloads[0].flows.fct_us.max / fair_us;
        let retransmitted = report.transport.retransmit_share;
        assert!((1.0..1.25).contains(&worst), "{congestion}: {worst} of the fair share");
        assert!(retransmitted <= 0.05, "{congestion}: {retransmitted} retransmitted");
    }
}

#[test]
fn an_incast_of_127_collapses_with_no_control() {
    holds_in_incast("incast-127.toml", 127.0, 2e6, 100.0);
}

#[test]
fn an_incast_of_1023_collapses_with_no_control() {
    holds_in_incast("incast-1023.toml", 1023.0, 1e5, 200.0);
}

#[test]
fn permutations_are_as_fast_as_nscc() {
    let others = [("policy", "reps".into()), ("ack_every", 1.into())];
    // uet-htsim's NSCC, mean and worst: 200 and 232.3 us; 54.3 and 57.4.
    for (name, mean, worst) in
        [("uec-reference.toml", 200.0, 232.3), ("permutation-8192.toml", 54.3, 57.4)]
    {
        let flows =
            run_with(name, congestion::Kind::Weft, &others).workloads.swap_remove(0).flows.fct_us;
        assert!(flows.mean <= mean, "{name}: {} us on the mean", flows.mean);
        assert!(flows.max <= 1.05 * worst, "{name}: {} us at worst", flows.max);
    }
}
