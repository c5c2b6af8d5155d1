//! What carrying costs: throughput and the whole machine's processor time, for bytes in bulk and for small
//! packets, beside the kernel's VXLAN and the same daemon as a plain forwarder. Needs root and iperf3.
//!
//! `cargo bench -p weft-vswitch --bench cost -- [seconds] [way ...]`
#![allow(clippy::disallowed_methods, reason = "a benchmark runs in real time")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::Duration;

use common::bulk::Bulk;
use common::{Site, Way, machine};
use weft_vswitch::config::SealOptions;

/// Datagrams a second that every way carries.
const PACKETS: u32 = 20_000;

/// Bytes of each.
const SMALL: u32 = 64;

struct Case {
    name: &'static str,
    way: Way,
    /// Whether the tenants hand large segments over.
    segments: bool,
    sealed: bool,
}

const CASES: [Case; 7] = [
    Case { name: "no overlay", way: Way::Tcp("cubic"), segments: true, sealed: false },
    Case { name: "kernel VXLAN", way: Way::Kernel, segments: true, sealed: false },
    Case { name: "plain forwarder", way: Way::Vanilla, segments: true, sealed: false },
    Case { name: "Weft", way: Way::Weft, segments: true, sealed: false },
    Case { name: "Weft, sealed", way: Way::Weft, segments: true, sealed: true },
    Case { name: "kernel, no TSO", way: Way::Kernel, segments: false, sealed: false },
    Case { name: "Weft, no TSO", way: Way::Weft, segments: false, sealed: false },
];

fn site(case: &Case) -> Site {
    let file = std::env::temp_dir().join("weft-bench-secret");
    fs::write(&file, "5a".repeat(32)).expect("room for a secret");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("an own file");
    let site = Site::changed(case.way, 4, |config| {
        config.lab.offloads = true;
        if case.sealed {
            let cipher = "aes-128-gcm".into();
            config.host.seal = Some(SealOptions { secret: file, number: 0, cipher });
        }
    });
    if !case.segments {
        let off = ["-K", "eth0", "tso", "off", "gso", "off"];
        (0..2).for_each(|end| drop(site.output(end, "ethtool", &off)));
    }
    site
}

/// Mb/s, and busy seconds a gigabyte.
fn bulk(site: &Site, seconds: u64) -> (f64, f64) {
    let busy = machine::busy_seconds();
    let bulk = Bulk::start(site, 5001);
    thread::sleep(Duration::from_secs(seconds));
    let end = bulk.now();
    let heard = bulk.end();
    let busy = machine::busy_seconds() - busy;
    (heard.rate(end / 5, end), busy / (heard.bytes() as f64 / 1e9))
}

/// Datagrams that arrived of those sent, in percent, and busy microseconds for each that did.
fn small(site: &Site, seconds: u64) -> (f64, f64) {
    let _server = site.serve("iperf3", &["-s"], 5201);
    let (to, span) = (site.server(), seconds.to_string());
    let (rate, size) = ((PACKETS * SMALL * 8).to_string(), SMALL.to_string());
    let arguments = ["-c", &to, "-u", "-b", &rate, "-l", &size, "-t", &span, "-J"];
    let busy = machine::busy_seconds();
    let report = site.output(0, "iperf3", &arguments);
    let busy = machine::busy_seconds() - busy;
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let sum = &report["end"]["sum"];
    let sent = sum["packets"].as_f64().expect("a number");
    let arrived = sent - sum["lost_packets"].as_f64().expect("a number");
    (arrived / sent * 100.0, busy * 1e6 / arrived)
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let seconds = arguments.iter().find_map(|word| word.parse().ok()).unwrap_or(5);
    let wanted: Vec<_> = arguments.iter().filter(|word| word.parse::<u64>().is_err()).collect();
    println!(
        "one TCP stream; then {PACKETS} datagrams of {SMALL} bytes a second; {seconds} s each"
    );
    println!(
        "{:16} {:>8} {:>15} {:>9} {:>16}",
        "way", "Mb/s", "processor s/GB", "arrived", "processor us each"
    );
    for case in CASES {
        if !wanted.is_empty() && !wanted.iter().any(|part| case.name.contains(part.as_str())) {
            continue;
        }
        let site = site(&case);
        let (rate, per_gigabyte) = bulk(&site, seconds);
        let (arrived, per_packet) = small(&site, seconds);
        println!(
            "{:16} {rate:8.0} {per_gigabyte:15.2} {arrived:8.1}% {per_packet:16.1}",
            case.name
        );
    }
}
