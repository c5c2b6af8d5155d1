//! Priority flow control: no packet is lost when a buffer fills, and the upstream port is paused.

use std::path::Path;

use weft_sim::{Report, Scenario, run};
use weft_units::Seed;

/// Windows so large that they fill every buffer, without congestion control.
const UNCONTROLLED: &str = r#"
    [transport]
    profile = "ecmp"
    congestion = "fixed-window"
    base_rtt = "200us"
    mtu = 1000
    ack_every = 1
    retransmission = { rto_min = "20ms", rto_max = "20ms" }
    [port]
    kind = "priority"
    [run]
    limit = "1s"
"#;

fn report(topology: &str, rest: &str) -> Report {
    report_with(topology, "1MB", rest)
}

fn report_with(topology: &str, buffer: &str, rest: &str) -> Report {
    let text = format!(
        "topology = {topology}\nbuffer = {{ size = \"{buffer}\" }}\n{UNCONTROLLED}\n{rest}"
    );
    let scenario = Scenario::parse(&text, Path::new("")).unwrap();
    let report = run(&scenario, Seed(1)).unwrap();
    assert!(report.finished, "{:?}", report.network);
    report
}

const ONE_LEAF: &str = r#"{ kind = "leaf-spine", leaves = 1, spines = 1, hosts_per_leaf = 17 }"#;

const INCAST: &str = r#"
    [[workload]]
    kind = "incast"
    size = "1MB"
"#;

#[test]
fn an_incast_loses_packets_without_pauses_and_none_with_them() {
    let lossy = report(ONE_LEAF, INCAST);
    assert!(lossy.network.lost["queue_full"] > 1_000, "{:?}", lossy.network.lost);
    assert!(lossy.pfc.is_none());

    let lossless = report(ONE_LEAF, &format!("[pfc]\nenabled = true\n{INCAST}"));
    assert_eq!(lossless.network.lost.values().sum::<u64>(), 0);
    assert_eq!(
        lossless.transport.counters.timeout_retransmits
            + lossless.transport.counters.fast_retransmits,
        0
    );
    // The port to the receiver never idles: 16 MB and their headers at 100 Gb/s.
    let bound = 16_000.0 * 1_078.0 * 8.0 / 100e3;
    let last = lossless.workloads[0].flows.fct_us.max;
    assert!((1.0..1.02).contains(&(last / bound)), "{last} us, bound {bound} us");
}

#[test]
fn headroom_holds_the_packets_in_flight() {
    let lost = |headroom: &str| {
        let pfc = format!("[pfc]\nenabled = true\n{headroom}\n{INCAST}");
        report_with(ONE_LEAF, "600KB", &pfc).network.lost["queue_full"]
    };
    assert_eq!(lost(""), 0);
    assert!(lost("headroom = \"0B\"") > 100);
}

#[test]
fn senders_pause_for_as_long_as_others_are_served() {
    let report = report(ONE_LEAF, &format!("[pfc]\nenabled = true\n{INCAST}"));
    let pfc = report.pfc.unwrap();
    let kinds: Vec<_> = pfc.tiers.keys().map(String::as_str).collect();
    assert_eq!((kinds, pfc.ports.len()), (vec!["host-up"], 16));
    // Sixteen share one port: each sends a sixteenth of the time, and is paused for nearly all the rest.
    let tier = pfc.tiers["host-up"];
    assert!(tier.max_paused_us <= report.simulated_us);
    let share = tier.paused_us / 16.0 / report.simulated_us;
    assert!((0.75..0.95).contains(&share), "paused {share} of the time");
    let summed: f64 = pfc.ports.iter().map(|port| port.paused_us).sum();
    assert!((summed - pfc.paused_us).abs() < 1e-6 && tier.frames == pfc.frames);
    assert!(pfc.resumes > 0 && pfc.frames > pfc.resumes);
}

#[test]
fn pauses_spread_from_the_receivers_leaf_over_the_spine_to_the_senders() {
    let topology = r#"{ kind = "leaf-spine", leaves = 2, spines = 1, hosts_per_leaf = 4 }"#;
    let workload = r#"
        [pfc]
        enabled = true
        [[workload]]
        kind = "incast"
        senders = "4..8"
        size = "4MB"
        [[workload]]
        kind = "incast"
        senders = "1"
        size = "4MB"
    "#;
    let report = report(topology, workload);
    assert_eq!(report.network.lost.values().sum::<u64>(), 0);
    let pfc = report.pfc.unwrap();
    let paused = |kind: &str| pfc.tiers.get(kind).map_or(0.0, |tier| tier.paused_us);
    let (spine, leaf, host) = (paused("spine-down"), paused("leaf-up"), paused("host-up"));
    assert!(spine > 100.0 && leaf > 100.0 && host > 400.0, "{:?}", pfc.tiers);
    // The receiver's leaf is 8, the spine 10, the senders' leaf 9: each was stopped by the next.
    let links: Vec<_> = pfc.ports.iter().map(|port| (port.from, port.to)).collect();
    assert!([(10, 8), (9, 10), (4, 9), (7, 9), (1, 8)].iter().all(|link| links.contains(link)));
}

#[test]
fn a_paused_host_still_acknowledges() {
    // Host 1 may not send, because of host 0; it still acknowledges the packets it receives.
    let workload = r#"
        [pfc]
        enabled = true
        [[workload]]
        kind = "incast"
        size = "2MB"
        [[workload]]
        kind = "pairs"
        pairs = [[0, 1]]
        size = "1MB"
    "#;
    let report = report(ONE_LEAF, workload);
    let alone = 1_000.0 * 1_078.0 * 8.0 / 100e3;
    let took = report.workloads[1].flows.fct_us.max;
    assert!(took < alone * 1.2, "{took} us, alone {alone} us");
    assert!(report.pfc.unwrap().ports.iter().any(|port| port.from == 1));
}

#[test]
fn an_invalid_lossless_configuration_is_refused() {
    let parse = |rest: &str| {
        let text = format!("topology = {ONE_LEAF}\n{rest}");
        let scenario = Scenario::parse(&text, Path::new("")).map_err(|error| error.to_string())?;
        run(&scenario, Seed(1)).map(|_| ()).map_err(|error| error.to_string())
    };
    let fifo = parse("[pfc]\nenabled = true").unwrap_err();
    assert!(fifo.contains("port.kind is \"fifo\""), "{fifo}");
    let small = "buffer = { size = \"100KB\" }\nport = { kind = \"priority\" }\npfc.enabled = true";
    let small = parse(small).unwrap_err();
    assert!(small.contains("switch 17 sets aside") && small.contains("100000"), "{small}");
}
