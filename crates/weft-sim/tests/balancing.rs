//! Effects of the single-path policies on a fabric.

use std::path::Path;

use weft_sim::{Report, Scenario};
use weft_units::Seed;

fn run(text: &str, policy: &str, seed: u64) -> Report {
    let text = text.replace("policy = \"hopper\"", &format!("policy = \"{policy}\""));
    let scenario = Scenario::parse(&text, Path::new("")).expect("it is a scenario");
    let report = weft_sim::run(&scenario, Seed(seed)).expect("it can be run");
    assert!(report.finished, "{policy}, seed {seed}");
    report
}

/// Two of six spines have a tenth of the rate: a policy that keeps the path drawn first stays on them.
#[test]
fn hopper_leaves_slow_spines_sooner_than_flowbender_and_ecmp_never_does() {
    let text = include_str!("../../../scenarios/asymmetry.toml");
    let text = text.replace("4MB", "1MB");
    let mut times = [0.0; 3];
    for seed in 1..=3 {
        let [hopper, flowbender, single] =
            ["hopper", "flowbender", "single"].map(|policy| run(&text, policy, seed));
        for (time, report) in times.iter_mut().zip([&hopper, &flowbender, &single]) {
            *time += report.simulated_us;
        }
        assert_eq!(single.transport.counters.path_switches, 0);
        assert!(hopper.transport.counters.path_switches > 0);
        // Hopper waits for packets in flight: few packets are reordered, although it switches paths.
        let late = [&hopper, &flowbender].map(|report| report.transport.counters.out_of_order);
        assert!(late[0] * 2 < late[1], "seed {seed}: {late:?}");
    }
    // 0.604 of FlowBender's time; at most 0.60 before losses and silences of paths were evaluated anew. Not yet
    // explained.
    assert!(times[0] < 0.65 * times[1] && times[0] < 0.5 * times[2], "{times:?}");
}

/// Four senders fill one receiver's port, behind every path.
const INCAST: &str = r#"
    name = "incast"
    topology = { kind = "leaf-spine", leaves = 2, spines = 4, hosts_per_leaf = 4 }
    transport = { profile = "ecmp", policy = "hopper", paths = 64, mtu = 1000, congestion = "fixed-window", ack_every = 1 }
    [[workload]]
    kind = "incast"
    receiver = 0
    senders = "4..8"
    size = "2MB"
"#;

#[test]
fn hopper_probes_and_stays_where_every_path_leads_to_the_same_queue() {
    let report = run(INCAST, "hopper", 1);
    assert!(report.transport.counters.probes_sent > 50, "{:?}", report.transport);
    assert_eq!(report.transport.counters.path_switches, 0);
}
