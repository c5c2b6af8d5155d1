//! The overlay as shipped, between simulated hosts: frames of a flow arrive in order and once under any loss, and many
//! senders share one receiver.

use std::path::Path;

use weft_sim::report::OverlayReport;
use weft_sim::{Report, Scenario, SimTime, build, run};
use weft_units::Seed;

/// Returns a scenario of hosts of 200 Gb/s below two leaves and four spines, with the overlay's transport as shipped.
fn scenario(hosts_per_leaf: u32, rest: &str) -> Scenario {
    let text = format!(
        r#"
        run = {{ limit = "2s" }}
        transport = {{ profile = "bifrost", congestion = "weft", first_window = 65536, mtu = 4096 }}
        {rest}
        [topology]
        kind = "leaf-spine"
        leaves = 2
        spines = 4
        hosts_per_leaf = {hosts_per_leaf}
        host_rate = "200Gbps"
        uplink_rates = ["200Gbps"]
        "#
    );
    Scenario::parse(&text, Path::new("")).unwrap()
}

fn simulate(hosts_per_leaf: u32, rest: &str) -> (Report, OverlayReport) {
    let report = run(&scenario(hosts_per_leaf, rest), Seed(1)).unwrap();
    let overlay = report.overlay.clone().expect("the section is there");
    (report, overlay)
}

/// Returns the report of one flow across the spines.
fn bulk(section: &str, fault: &str) -> (Report, OverlayReport) {
    let workload = "[[workload]]\nkind = \"pairs\"\npairs = [[0, 1]]\nsize = \"20MB\"";
    let (report, overlay) = simulate(1, &format!("overlay = {{ {section} }}\n{workload}\n{fault}"));
    assert!(report.finished && overlay.tenants.bytes_received == 20_000_000, "{overlay:?}");
    (report, overlay)
}

/// The most used uplink, once there is one, loses 1 %.
const ONE_PATH_LOSES: &str = r#"
    [[fault]]
    kind = "loss"
    links = "busiest-uplink"
    at = "50us"
    probability = 0.01
"#;

#[test]
fn a_flow_uses_all_paths_at_line_rate_and_its_tenant_retransmits_nothing() {
    let (report, overlay) = bulk("", "");
    // 185 Gb/s, slow start included.
    assert!(report.goodput.total_gbps > 170.0, "{}", report.goodput.total_gbps);
    assert_eq!(
        (overlay.pair_ends, overlay.plain_sent, overlay.tenants.frames_retransmitted),
        (2, 0, 0)
    );
    assert_eq!(overlay.reliable_sent, overlay.tenants.frames_sent);
    assert!(report.transport.counters.path_switches > 100, "{:?}", report.transport);
}

#[test]
fn the_overlay_retransmits_the_losses_of_a_path_and_plain_vxlan_leaves_them_to_tenants() {
    let (overlay, its) = bulk("", ONE_PATH_LOSES);
    let (plain, theirs) = bulk("reliable = false", ONE_PATH_LOSES);
    for report in [&overlay, &plain] {
        assert!(report.network.lost["lossy_link"] > 0, "the path was used: {:?}", report.network);
    }
    assert_eq!(its.tenants.frames_retransmitted, 0, "{its:?}");
    assert!(overlay.transport.counters.fast_retransmits > 0, "{:?}", overlay.transport);
    assert!(theirs.tenants.frames_retransmitted > 100 && theirs.reliable_sent == 0, "{theirs:?}");
    let (fast, slow) = (overlay.goodput.total_gbps, plain.goodput.total_gbps);
    // 105 and 38 Gb/s of 20 MB; 193 and 32 of the 200 MB of `scenarios/overlay-bulk.toml`.
    assert!(fast > 2.0 * slow, "{fast} and {slow} Gb/s");
}

#[test]
fn frames_arrive_in_order_and_once_through_every_fault_of_links() {
    let mixed = r#"
        overlay = { tenants = 2, ports = 3, offload = "20KB" }
        [[workload]]
        kind = "poisson"
        sizes = "ali-storage"
        load = 0.3
        duration = "300us"
    "#;
    for fault in [
        "",
        "kind = \"loss\"\nprobability = 0.02",
        "kind = \"duplication\"\nprobability = 0.02",
        "kind = \"reordering\"\nby = \"5us\"\nprobability = 0.02",
        "kind = \"corruption\"\nprobability = 0.001",
    ] {
        let fault = if fault.is_empty() {
            String::new()
        } else {
            format!("[[fault]]\nlinks = \"uplinks\"\n{fault}")
        };
        let scenario = scenario(4, &format!("{mixed}\n{fault}"));
        let mut world = build(&scenario, Seed(3)).unwrap();
        world.start();
        assert!(world.run(SimTime::from_picos(500_000_000_000)), "{fault}");
        // Packets in flight when the workload is done arrive too.
        world.run_to(SimTime::from_picos(600_000_000_000));
        let network = &world.network;
        assert!(network.contradictions.is_empty(), "{fault}: {:?}", network.contradictions);
        let (mut sent, mut received) = (0, 0);
        for host in &network.hosts {
            let counters = host.stack.as_deref().unwrap().vtep().unwrap().counters();
            sent += counters.tenants.frames_sent;
            received += counters.tenants.frames_received;
            assert_eq!(counters.switch.dropped.iter().sum::<u64>(), 0, "{fault}: {counters:?}");
        }
        assert_eq!(sent, received, "{fault}");
        let report = run(&scenario, Seed(3)).unwrap();
        let flows = &report.workloads[0].flows;
        assert!(flows.started > 100 && flows.started == flows.finished, "{fault}: {flows:?}");
        let overlay = report.overlay.as_ref().unwrap();
        assert_eq!(
            (overlay.tenants.late, overlay.tenants.frames_duplicate, overlay.tenants.damaged),
            (0, 0, 0),
            "{fault}"
        );
        assert_eq!(report.to_json(), run(&scenario, Seed(3)).unwrap().to_json(), "{fault}");
    }
}

#[test]
fn tenants_without_in_order_receive_frames_as_they_arrive() {
    let (_, overlay) = bulk("in_order = false, offload = \"0B\"", ONE_PATH_LOSES);
    assert!(
        overlay.tenants.late > 0
            && overlay.tenants.frames_duplicate == 0
            && overlay.tenants.damaged == 0,
        "{overlay:?}"
    );
}

#[test]
fn frames_that_the_switch_drops_or_declines_are_sent_again() {
    let (_, full) = bulk("waiting_frames = 1, offload = \"0B\"", "");
    // Ten segments are sent before the connection is established.
    assert_eq!(full.dropped["queue_full"], 9, "{full:?}");
    assert!(full.tenants.frames_retransmitted >= 9, "{full:?}");
    let (_, narrow) = bulk("buffers = 12", ONE_PATH_LOSES);
    // Declined packets are redelivered after the transport's timeout, which tenants do not wait for.
    assert!(narrow.declined > 0 && narrow.dropped.values().sum::<u64>() == 0, "{narrow:?}");
}

#[test]
fn frames_leave_as_plain_vxlan_if_all_paths_have_failed() {
    let down = "[[fault]]\nkind = \"link-down\"\nlinks = \"uplinks\"\nat = \"200us\"\nduration = \"300ms\"";
    let (_, overlay) = bulk("plain_for = \"1ms\"", down);
    assert!(overlay.plain_sent > 0 && overlay.tenants.timeouts > 0, "{overlay:?}");
    assert_eq!(overlay.tenants.damaged, 0);
}

#[test]
fn many_tenants_share_one_receiver_fairly() {
    let workload = "[[workload]]\nkind = \"incast\"\nreceiver = 0\nsize = \"4MB\"";
    let (report, overlay) = simulate(8, &format!("overlay = {{}}\n{workload}"));
    assert!(report.finished && overlay.pair_ends == 30, "{overlay:?}");
    assert_eq!(
        (
            overlay.tenants.frames_retransmitted,
            overlay.tenants.late,
            overlay.tenants.frames_duplicate
        ),
        (0, 0, 0),
        "{overlay:?}"
    );
    // With fair shares, all finish at once in the time that 60 MB take at 200 Gb/s.
    let fair_us = 60.0 * 8e6 / 200e3;
    let worst = report.workloads[0].flows.fct_us.max / fair_us;
    // 1.30; 1.12 with 127 senders, `scenarios/overlay-incast.toml`.
    assert!((1.0..1.5).contains(&worst), "{worst} of the fair share's time");
    assert!(report.transport.retransmit_share < 0.001, "{:?}", report.transport);
}

#[test]
fn requests_and_replies_share_a_pairs_connection() {
    let text = r#"
        overlay = { ports = 2 }
        [[workload]]
        kind = "writes"
        pairs = [[0, 1], [1, 0]]
        size = "1KB"
        connections = 4
        total = "50KB"
    "#;
    let (report, overlay) = simulate(1, text);
    assert!(report.finished, "{report:?}");
    assert_eq!(report.workloads[0].flows.finished, 2 * 4 * 50);
    // Four flows each way, and two vNICs a host: each end opens the connection that it sends on.
    assert!(overlay.pair_ends <= 8, "{overlay:?}");
    assert_eq!((overlay.tenants.late, overlay.tenants.frames_duplicate), (0, 0), "{overlay:?}");
}

#[test]
fn invalid_settings_are_refused_by_name() {
    for (section, want) in [
        ("[overlay]\nofload = 4", "did you mean \"offload\"?"),
        ("[overlay]\nports = 0", "tenants times ports is 0, expected 1 to"),
        ("[overlay]\nmtu = 100", "mtu is 100, expected 576 to 9000"),
        ("[overlay]\n[messages]", "together with neither messages nor a bus"),
        ("[overlay]\n[host]\nhandshake = true", "without handshake and place_delay"),
        ("[overlay]\n[[fault]]\nkind = \"restart\"\nhost = 0\nat = \"1us\"", "do not restart"),
        ("[overlay]\n[host]\nsource_ports = \"planned\"", "without a section messages or overlay"),
        ("[overlay]\nmtu = 4096", "mtu is 4096, expected at most 4070"),
        ("[overlay]\nports = 16777216", "4 hosts have 67108864 vNICs"),
    ] {
        let text = format!(
            "topology = {{ kind = \"leaf-spine\", leaves = 2, hosts_per_leaf = 2 }}\n\
             transport = {{ mtu = 4096 }}\n{section}\n"
        );
        let error = match Scenario::parse(&text, Path::new("")) {
            Ok(scenario) => run(&scenario, Seed(1)).unwrap_err().to_string(),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(want), "{section}: {error}");
    }
}
