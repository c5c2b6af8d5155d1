//! Ultra Ethernet's transport over switches that trim packets: NSCC and REPS, compared with the completion times that
//! uet-htsim's own validation expects (`validate_uec_sender.txt`: 100 Gb/s, three tiers). Deterministic.

use std::path::Path;

use weft_sim::{Report, Scenario, run};
use weft_units::Seed;

/// The change of a scenario of NSCC to the receiver's credit alone, and to both.
const CREDITS: [&str; 2] = [
    "congestion = \"nscc\" -> congestion = \"rccc\"",
    "nscc = { trimming = true } -> nscc = { trimming = true, credits = true }",
];

/// Returns a scenario's text with a change, `before -> after`; unchanged if that is empty.
fn changed(text: &str, change: &str) -> String {
    match change.split_once(" -> ") {
        Some((from, to)) => text.replace(from, to),
        None => text.to_owned(),
    }
}

/// Returns the report of a workload among `hosts` hosts at 100 Gb/s, with the transport and the switches of
/// `scenarios/uec-permutation.toml`; senders share the first window, as in `uec-incast.toml`.
fn run_with(hosts: u32, workload: &str, changes: &str) -> Report {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let text = std::fs::read_to_string(folder.join("uec-permutation.toml")).unwrap();
    let end = text.find("[[workload]]").unwrap();
    let text = text[..end]
        .replace("hosts = 128", &format!("hosts = {hosts}"))
        .replace("share_first_window = false", "share_first_window = true");
    let text = changed(&text, changes);
    let scenario = Scenario::parse(&format!("{text}[[workload]]\n{workload}"), &folder).unwrap();
    let report = run(&scenario, Seed(1)).unwrap();
    assert!(report.finished, "{workload}");
    report
}

#[test]
fn an_incast_of_15_takes_its_fair_share_and_no_timeout() {
    let workload = "kind = \"incast\"\nreceiver = 15\nsize = \"2MB\"";
    let report = run_with(16, workload, "");
    let fct = &report.workloads[0].flows.fct_us;
    // 15 x 2 MB at 100 Gb/s are 2,400 us without headers; uet-htsim's validation expects 2,550.
    assert!((2_400.0..2_550.0 * 1.05).contains(&fct.max), "{} us", fct.max);
    let counters = &report.transport.counters;
    assert!(report.network.trimmed > 100, "{}", report.network.trimmed);
    assert_eq!(counters.timeout_retransmits, 0, "trimmed packets are answered at once");
    assert_eq!(counters.nacks_received, report.network.trimmed);
    assert_eq!(report.network.lost["queue_full"], 0);
}

#[test]
fn without_trimming_the_same_incast_waits_for_timeouts() {
    let workload = "kind = \"incast\"\nreceiver = 15\nsize = \"2MB\"";
    let report = run_with(16, workload, "kind = \"trim\" -> kind = \"ecn\"\nlimit = \"150KB\"");
    assert!(report.network.lost["queue_full"] > 0 && report.network.trimmed == 0);
    assert!(report.transport.counters.timeout_retransmits > 0);
}

#[test]
fn a_permutation_of_16_is_as_fast_as_in_uet_htsim() {
    let report = run_with(16, "kind = \"permutation\"\nsize = \"2MB\"", "");
    let fct = &report.workloads[0].flows.fct_us;
    assert!(fct.max <= 210.0 * 1.05, "{} us", fct.max);
}

/// Returns the report of a scenario with a change.
fn run_scenario(name: &str, change: &str) -> Report {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    let scenario = Scenario::parse(&changed(&text, change), &folder).unwrap();
    let report = run(&scenario, Seed(1)).unwrap();
    let fct = &report.workloads[0].flows.fct_us;
    let (trimmed, timeouts) =
        (report.network.trimmed, report.transport.counters.timeout_retransmits);
    println!("{name}, {change}: {fct:?}, {trimmed} trimmed, {timeouts} timeouts");
    assert!(report.finished, "{name}");
    report
}

#[test]
fn a_permutation_of_128_is_as_fast_as_in_uet_htsim() {
    let fct = run_scenario("uec-permutation.toml", "").workloads.swap_remove(0).flows.fct_us;
    // uet-htsim with oblivious spraying: 200 us on the mean, 232.3 at worst.
    assert!(fct.mean <= 1.05 * 200.0 && fct.max <= 1.05 * 232.3, "{fct:?}");
}

#[test]
fn a_permutation_of_1024_over_paths_in_turn_is_as_fast_as_in_uet_htsim() {
    let in_turn = "policy = \"reps\" -> policy = \"round-robin\"";
    let fct =
        run_scenario("uec-permutation-1024.toml", in_turn).workloads.swap_remove(0).flows.fct_us;
    // uet-htsim: 106.4 us on the mean, 115 at worst.
    assert!((0.95 * 106.4..1.05 * 106.4).contains(&fct.mean) && fct.max <= 1.05 * 115.0, "{fct:?}");
}

#[test]
fn with_slow_cables_a_permutation_is_as_fast_as_in_uet_htsim() {
    // Its mean and its slowest flow, us.
    let [rccc, both] = CREDITS;
    for (change, mean, worst) in [("", 200.9, 239.3), (rccc, 198.6, 212.9), (both, 201.8, 239.4)] {
        let report = run_scenario("uec-failed-links.toml", change);
        let fct = &report.workloads[0].flows.fct_us;
        assert!(fct.mean <= 1.05 * mean && fct.max <= 1.05 * worst, "{change}: {fct:?}");
        // With all cables alike, none.
        assert!(report.network.trimmed > 100, "{change}: {}", report.network.trimmed);
    }
}

#[test]
fn an_incast_of_1023_short_flows_takes_115_percent_of_its_share() {
    let worst = |change| {
        // 1,023 x 100 KB at 200 Gb/s are 4,092 us.
        run_scenario("uec-incast.toml", change).workloads[0].flows.fct_us.max / 4_092.0
    };
    let nscc = worst("");
    assert!((1.0..1.15).contains(&nscc), "{nscc} of the fair share");
    // uet-htsim: 1.08.
    for change in CREDITS {
        let with_credits = worst(change);
        assert!((1.0..1.08).contains(&with_credits), "{change}: {with_credits} of the fair share");
    }
}

/// Returns the slowest flow of an incast of 15 x 100 KB with a congestion control, us, and its trimmed packets.
fn short_incast(changes: &str) -> (f64, u64) {
    let workload = "kind = \"incast\"\nreceiver = 15\nsize = \"100KB\"";
    let report = run_with(16, workload, changes);
    assert_eq!(report.transport.counters.timeout_retransmits, 0, "{changes}");
    (report.workloads[0].flows.fct_us.max, report.network.trimmed)
}

#[test]
fn with_credits_a_short_incast_takes_its_fair_share_and_trims_each_packet_once_at_most() {
    for changes in CREDITS {
        let (worst, trimmed) = short_incast(changes);
        println!("{changes}: {worst} us, {trimmed} trimmed");
        // 15 x 100 KB with headers at 0.99 of 100 Gb/s are 124 us, and the first round trip carries none of the credit.
        assert!((122.0..155.0).contains(&worst), "{changes}: {worst} us");
        // 15 flows of 25 packets, all of which leave by speculative credit.
        assert!((15..=15 * 25).contains(&trimmed), "{changes}: {trimmed} trimmed");
    }
}

#[test]
fn a_flow_alone_is_as_fast_with_credits_as_without() {
    let fct = |changes: &str| {
        let report = run_with(16, "kind = \"pairs\"\npairs = [[0, 15]]\nsize = \"2MB\"", changes);
        report.workloads[0].flows.fct_us.max
    };
    let without = fct("");
    for changes in CREDITS {
        // The receiver grants 0.99 of the line rate.
        let with = fct(changes);
        assert!(with <= 1.015 * without, "{changes}: {with} us, {without} without");
    }
}

#[test]
fn trimming_needs_ports_that_hold_queues() {
    let text = "topology = { kind = \"leaf-spine\" }\nqueue = { kind = \"trim\" }\n\
                [[workload]]\nkind = \"incast\"\n";
    let error = Scenario::parse(text, Path::new("")).unwrap_err().to_string();
    assert!(error.contains("port.kind is \"fifo\", expected \"priority\""), "{error}");
}
