//! The cost of bulk transfer: throughput and the whole machine's processor time, compared with the kernel's
//! VXLAN and the same daemon as a plain forwarder. The rows of `redis` without loss show the cost of small
//! packets. Needs root and ethtool.
//!
//! `cargo bench -p weft-vswitch --bench cost -- [seconds] [loss, as 1%] [way ...]`
//!
//! With a loss, single packets are lost on all paths in both directions, so links carry them one by one.
#![allow(clippy::disallowed_methods, reason = "a benchmark runs in real time")]

mod common;

use std::thread;
use std::time::Duration;

use common::bulk::Bulk;
use common::{Site, Way, machine};
use weft_testkit::{figure_row, json};
use weft_vswitch::config::Encryption;

struct Case {
    name: &'static str,
    way: Way,
    /// `true` if the tenants hand over large segments.
    segments: bool,
    sealed: bool,
}

const CASES: [Case; 8] = [
    Case { name: "no overlay", way: Way::Tcp("cubic"), segments: true, sealed: false },
    Case { name: "kernel VXLAN", way: Way::Kernel, segments: true, sealed: false },
    Case { name: "plain forwarder", way: Way::Vanilla, segments: true, sealed: false },
    Case { name: "Weft", way: Way::Weft, segments: true, sealed: false },
    Case { name: "Weft with Swift", way: Way::Swift, segments: true, sealed: false },
    Case { name: "Weft, sealed", way: Way::Weft, segments: true, sealed: true },
    Case { name: "kernel, no TSO", way: Way::Kernel, segments: false, sealed: false },
    Case { name: "Weft, no TSO", way: Way::Weft, segments: false, sealed: false },
];

/// The loss of no packets.
const NONE: &str = "0%";

/// Builds the fabric of a case.
fn site(case: &Case, loss: &str) -> Site {
    let mut site = Site::changed(case.way, 4, |config| {
        config.lab.offloads = loss == NONE;
        let mode = if case.sealed { "required" } else { "off" };
        config.host.encryption = Encryption::of_mode(mode);
    });
    if loss != NONE {
        site.lose(loss);
    }
    if !case.segments {
        let off = ["-K", "eth0", "tso", "off", "gso", "off"];
        (0..2).for_each(|end| drop(site.output(end, "ethtool", &off)));
    }
    site
}

/// Returns the rate, Mb/s, and the busy processor time, seconds per gigabyte.
fn bulk(site: &Site, seconds: u64) -> (f64, f64) {
    let busy = machine::busy_seconds();
    let bulk = Bulk::start(site, 5001);
    thread::sleep(Duration::from_secs(seconds));
    let end = bulk.now();
    let arrivals = bulk.end();
    let busy = machine::busy_seconds() - busy;
    (arrivals.rate(end / 5, end), busy / (arrivals.bytes() as f64 / 1e9))
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let seconds = arguments.iter().find_map(|word| word.parse().ok()).unwrap_or(5);
    let loss = arguments.iter().find(|word| word.ends_with('%')).map_or(NONE, String::as_str);
    let is_name = |word: &&String| word.parse::<u64>().is_err() && !word.ends_with('%');
    let wanted: Vec<_> = arguments.iter().filter(is_name).collect();
    println!("one TCP stream, {seconds} s each, {loss} lost");
    println!("{:16} {:>8} {:>15}", "way", "Mb/s", "processor s/GB");
    for case in CASES {
        if !wanted.is_empty() && !wanted.iter().any(|part| case.name.contains(part.as_str())) {
            continue;
        }
        let site = site(&case, loss);
        let (rate, per_gigabyte) = bulk(&site, seconds);
        println!("{:16} {rate:8.0} {per_gigabyte:15.2}", case.name);
        if loss == NONE {
            let row = json!({ "way": case.name, "rate": rate, "cost": per_gigabyte });
            figure_row("perf-overlay-cost", &row);
        }
    }
}
