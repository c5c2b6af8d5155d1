//! Short runs, and the counts of their reports.

use std::path::Path;

use super::*;

#[test]
fn unfinished_flows_count_with_the_bytes_that_arrived() {
    let text = r#"
        name = "cut short"
        topology = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 2 }
        run = { limit = "100us" }
        [[workload]]
        kind = "permutation"
        size = "1GB"
    "#;
    let scenario = Scenario::parse(text, Path::new("")).unwrap();
    let report = run(&scenario, Seed(1)).unwrap();
    let flows = &report.workloads[0].flows;
    assert_eq!((report.finished, flows.started, flows.finished), (false, 4, 0));
    // Ports have 100 Gb/s; the first packets take a few microseconds.
    let hosts = report.goodput.per_host_gbps;
    assert!(hosts.count == 4 && hosts.min > 30.0 && hosts.max < 100.0, "{hosts:?}");
}

#[test]
fn a_cancelled_run_ends_at_the_next_check() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    let text = r#"
        topology = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 2 }
        [[workload]]
        kind = "permutation"
        size = "100MB"
    "#;
    let scenario = Scenario::parse(text, Path::new("")).unwrap();
    let asked = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&asked);
    let cancel = crate::Cancel::when(move || counter.fetch_add(1, Ordering::Relaxed) == 20);
    let hooks = Hooks { cancel, ..Hooks::default() };
    let ended = run_with(&scenario, Seed(1), &hooks);
    assert!(matches!(ended, Err(RunError::Cancelled)), "{ended:?}");
    assert_eq!(asked.load(Ordering::Relaxed), 21, "it is not asked again");
}

#[test]
fn routes_that_do_not_fit_end_the_run_with_their_error() {
    let text = r#"
        topology = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 2 }
        [[workload]]
        kind = "permutation"
        size = "10MB"
    "#;
    let scenario = Scenario::parse(text, Path::new("")).unwrap();
    let mut world = build(&scenario, Seed(1)).unwrap();
    world.start();
    // To install 65,535 host routes would take minutes.
    let refused = Err(RouteError::TooManyAreas { host: 7 });
    assert!(world.network.has_routes(Ok(())) && !world.network.has_routes(refused));
    let ended = finish(&scenario, Seed(1), &mut world, &mut ()).unwrap_err();
    assert_eq!(
        ended.to_string(),
        "new routes after 0.000us of the run: a route for host 7 alone is one more than 65535 \
         areas: steer fewer hosts"
    );
}

#[test]
fn a_flow_alone_is_not_slowed_down() {
    for size in ["1KB", "10KB", "1MB"] {
        let text = format!(
            r#"
            topology = {{ kind = "leaf-spine" }}
            transport = {{ profile = "ecmp", mtu = 1000, ack_every = 1 }}
            host = {{ jitter = "0ns" }}
            [[workload]]
            kind = "pairs"
            pairs = [[0, 127]]
            size = "{size}"
            "#
        );
        let scenario = Scenario::parse(&text, Path::new("")).unwrap();
        let report = run(&scenario, Seed(1)).unwrap();
        let slowdown = report.workloads[0].flows.slowdown.mean;
        assert!((1.0..1.01).contains(&slowdown), "{size}: {slowdown}");
    }
}

#[test]
fn bonded_hosts_distribute_connections_over_their_ports() {
    let fill = |bond: bool, seed: u64| {
        let text = format!(
            r#"
            topology = {{ kind = "hpn", segments = 1, servers_per_segment = 2, rails = 1, aggregations = 1 }}
            transport = {{ policy = "single", paths = 128 }}
            host = {{ bond = {bond} }}
            [[workload]]
            kind = "pairs"
            pairs = [[0, 1]]
            connections = 2
            size = "4MB"
            "#
        );
        let scenario = Scenario::parse(&text, Path::new("")).unwrap();
        run(&scenario, Seed(seed)).unwrap().goodput.total_gbps
    };
    // There are two ports of 200 Gb/s. Each of 128 single paths is on one of them, and for some seed both are.
    assert!((1..9).all(|seed| fill(true, seed) > 300.0));
    assert!((1..9).any(|seed| fill(false, seed) < 200.0));
}

#[test]
fn slow_uplinks_are_reported_apart_from_fast_ones() {
    let text = r#"
        transport = { policy = "oblivious", congestion = "fixed-window" }
        run = { limit = "1ms" }
        [topology]
        kind = "leaf-spine"
        leaves = 2
        spines = 2
        hosts_per_leaf = 1
        uplink_rates = ["100Gbps", "10Gbps"]
        [[workload]]
        kind = "pairs"
        pairs = [[0, 1]]
        size = "100MB"
    "#;
    let scenario = Scenario::parse(text, Path::new("")).unwrap();
    let slow = run(&scenario, Seed(1)).unwrap().ports.slow_uplinks.unwrap();
    // Each link gets half of the packets: the slow link of the sender's leaf is full, and the other carries no
    // more bytes. The links of the receiver's leaf carry ACKs.
    assert_eq!(slow.links, 2);
    assert!(slow.load > 0.45 && slow.fast_load < 0.1, "{slow:?}");
    assert!((0.4..0.6).contains(&slow.share), "{slow:?}");
}

#[test]
fn a_link_that_carries_half_of_the_time_is_half_full() {
    let text = r#"
        topology = { kind = "leaf-spine", leaves = 2, spines = 1, hosts_per_leaf = 1 }
        [[workload]]
        kind = "pairs"
        pairs = [[0, 1]]
        size = "10MB"
    "#;
    let scenario = Scenario::parse(text, Path::new("")).unwrap();
    let tiers = run(&scenario, Seed(1)).unwrap().ports.tiers;
    let kinds: Vec<_> = tiers.iter().map(|(kind, load)| (kind.as_str(), load.links)).collect();
    assert_eq!(kinds, [("host-up", 2), ("leaf-down", 2), ("leaf-up", 2), ("spine-down", 2)]);
    // One of each pair carries the flow, and the other its ACKs.
    for load in tiers.values() {
        assert!(load.max > 0.95 && load.max <= 1.0, "{load:?}");
        assert!((0.48..0.53).contains(&load.mean), "{load:?}");
    }
}
