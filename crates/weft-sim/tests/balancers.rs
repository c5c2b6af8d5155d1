//! Effects of the switches' balancers on flows, on a fabric with unequal paths.

use std::path::Path;

use weft_sim::{Report, Scenario};
use weft_units::Seed;

/// Hopper's testbed (section 4.2): four spines at 10 Gb/s, two at 1 Gb/s.
const TESTBED: &str = r#"
    [topology]
    kind = "leaf-spine"
    leaves = 2
    spines = 6
    hosts_per_leaf = 4
    host_rate = "25Gbps"
    uplink_rates = ["10Gbps", "10Gbps", "10Gbps", "10Gbps", "1Gbps", "1Gbps"]

    [transport]
    profile = "ecmp"
    mtu = 1000
    congestion = "dctcp"
    ack_every = 1
    retransmission = { rto_min = "10ms", rto_max = "40ms" }

    [queue]
    ecn_min = "20KB"
    ecn_max = "80KB"

    [[workload]]
    kind = "pairs"
    pairs = [[0, 4], [1, 5], [2, 6], [3, 7]]
    connections = 4
    size = "1MB"
"#;

fn run(kind: &str, seed: u64) -> Report {
    // Packets take up to a millisecond on the slow paths: a TAIL can arrive more than 16 us late, and a flow that is
    // silent for 300 us may still have packets in flight.
    let flush_settings = "conweave = { flush_slack = \"1ms\", expiry = \"4ms\", aging = \"8ms\" }";
    let text = format!("{TESTBED}\n[forwarding]\nkind = \"{kind}\"\n{flush_settings}\n");
    let scenario = Scenario::parse(&text, Path::new("")).expect("it is a scenario");
    let report = weft_sim::run(&scenario, Seed(seed)).expect("it can be run");
    assert!(report.finished, "{kind}, seed {seed}");
    report
}

#[test]
fn balancers_that_detect_slow_paths_finish_sooner_than_ecmp() {
    for seed in 1..=3 {
        let [ecmp, weighted, conga, conweave] =
            ["ecmp", "weighted-ecmp", "conga", "conweave"].map(|kind| run(kind, seed).simulated_us);
        for (kind, time) in [("weighted-ecmp", weighted), ("conga", conga), ("conweave", conweave)]
        {
            assert!(time < 0.8 * ecmp, "seed {seed}: {kind} {time} us, ecmp {ecmp} us");
        }
    }
}

#[test]
fn conweave_moves_flows_without_reordering_at_hosts() {
    for seed in 1..=3 {
        let report = run("conweave", seed);
        assert!(report.network.control_sent > 100, "seed {seed}: {:?}", report.network);
        assert_eq!(report.transport.counters.out_of_order, 0, "seed {seed}");
        assert!(run("drill", seed).transport.counters.out_of_order > 100, "seed {seed}");
    }
}
