//! HPCC over switches that write telemetry on packets (SIGCOMM 2019, section 5): short queues at nearly full links.
//! Deterministic.

use std::path::Path;

use weft_sim::{Report, Scenario, run};
use weft_units::Seed;

/// Returns the report of a workload on 16 hosts at 100 Gb/s, each flow on one path, with a congestion control.
fn run_with(congestion: &str, workload: &str) -> Report {
    let text = format!(
        "name = \"telemetry\"
        topology = {{ kind = \"fat-tree\", hosts = 16, tiers = 3, rate = \"100Gbps\" }}
        transport = {{ profile = \"ecmp\", mtu = 1000, ack_every = 1, congestion = \"{congestion}\", share_first_window = false }}
        port = {{ kind = \"priority\" }}
        buffer = {{ size = \"64MiB\" }}
        run = {{ limit = \"50ms\" }}
        [[workload]]
        {workload}"
    );
    let report = run(&Scenario::parse(&text, Path::new("")).unwrap(), Seed(1)).unwrap();
    assert!(report.finished, "{congestion}");
    report
}

#[test]
fn an_incast_has_a_short_queue_at_a_nearly_full_link() {
    let report = run_with("hpcc", "kind = \"incast\"\nreceiver = 15\nsize = \"2MB\"");
    let queue = report.queues["leaf-down"].mean_bytes;
    let fct = &report.workloads[0].flows.fct_us;
    let full = run_with("fixed-window", "kind = \"incast\"\nreceiver = 15\nsize = \"2MB\"");
    let full = full.queues["leaf-down"].mean_bytes;
    println!("hpcc: {queue} of {full} bytes, {fct:?}");
    // Windows without feedback stand in the queue for the whole run; HPCC's only until the first reports.
    assert!(queue < 0.2 * full, "{queue} of {full} bytes");
    // 15 x 2 MB at 100 Gb/s are 2,400 us without headers, and 2,560 with them; 95 % of the link is the target.
    assert!(fct.max < 2_560.0 / 0.95 * 1.1, "{} us", fct.max);
}

#[test]
fn telemetry_needs_ports_that_write_it() {
    let text = "topology = { kind = \"leaf-spine\" }\ntransport = { congestion = \"hpcc\" }\n\
                [[workload]]\nkind = \"incast\"\n";
    let scenario = Scenario::parse(text, Path::new("")).unwrap();
    let error = run(&scenario, Seed(1)).unwrap_err().to_string();
    let expected =
        "transport.congestion is \"hpcc\", but port.kind is \"fifo\", expected \"priority\"";
    assert!(error.contains(expected), "{error}");
}
