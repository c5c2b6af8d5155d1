//! The permutations that speed is measured on give the same result to the digit after every optimisation.

use std::path::Path;

use weft_sim::{Scenario, run};
use weft_units::Seed;

const SCENARIO: &str = include_str!("../../../scenarios/uec-reference.toml");

/// Returns the result of `text`: packet-hops, then the mean and the longest completion time in microseconds.
fn outcome(text: &str) -> (u64, String, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let report = run(&Scenario::parse(text, &folder).unwrap(), Seed(1)).unwrap();
    assert!(report.finished, "{:?}", report.network);
    let times = &report.workloads[0].flows.fct_us;
    (report.network.packet_hops, format!("{:.3}", times.mean), format!("{:.3}", times.max))
}

/// Few hosts: tiers do not alternate, and nothing is prefetched.
#[test]
fn the_result_for_128_hosts_is_unchanged() {
    let expected = (453_709, String::from("229.750"), String::from("245.772"));
    assert_eq!(outcome(SCENARIO), expected);
}

/// Many hosts: tiers alternate, and packets, paths and hosts are prefetched.
#[test]
fn the_result_for_1024_hosts_is_unchanged() {
    let text = SCENARIO.replace("hosts = 128", "hosts = 1024").replace("100Gbps", "200Gbps");
    let text = text.replace("permutation-128", "permutation-1024");
    let expected = (3_650_008, String::from("118.892"), String::from("129.668"));
    assert_eq!(outcome(&text), expected);
}
