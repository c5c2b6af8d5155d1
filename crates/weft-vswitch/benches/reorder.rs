//! The effect of spraying on a guest (BIFROST, figures 17, 18 and 23): throughput of one TCP stream, segments that
//! its kernel retransmitted, and processor time per gigabyte, by the number of packets that take the same path
//! before the next, with the overlay's reordering and without. Then losses between switch and tenant under an
//! incast (figure 19). Needs root.
//!
//! `cargo bench -p weft-vswitch --bench reorder -- [seconds] [granularity|incast ...]`
#![allow(clippy::disallowed_methods, reason = "a benchmark runs in real time")]

mod common;

use std::thread;
use std::time::Duration;

use common::bulk::Bulk;
use common::{Site, TENANT, Way, machine};
use weft_testkit::{figure_row, json};
use weft_units::Seed;
use weft_vswitch::control::{Answer, Request, send_request};

/// Numbers of packets in a row on the same path.
const GRANULARITIES: [u16; 7] = [1, 2, 5, 10, 20, 50, 100];

/// Number of fabrics of each row. On each the kernel hashes the overlay's ports onto the spines differently.
const ROUNDS: u32 = 3;

/// The rows: their name, the overlay's congestion control, and `true` if the overlay puts packets in order instead
/// of the guest. `weft` is the default. It slows down for the queue that strict rotation leaves on the slowest
/// path, which would hide the effect of ordering, so the comparison has a fixed window.
const CONTENDERS: [(&str, Way, bool); 3] = [
    ("guest", Way::FixedWindow, false),
    ("overlay", Way::FixedWindow, true),
    ("overlay with weft", Way::Weft, true),
];

fn granularity(seconds: u64) {
    println!("one TCP stream over four paths of 100, 80, 60 and 40 Mb/s, {seconds} s each");
    println!(
        "{:>8} {:17} {:>8} {:>14} {:>16}",
        "packets", "orders", "Mb/s", "retransmits/MB", "processor s/GB"
    );
    for group in GRANULARITIES {
        for (orders, way, in_order) in CONTENDERS {
            for _ in 0..ROUNDS {
                let [rate, again, cpu] = stream(way, group, in_order, seconds);
                let figures = [("17", "rate", rate), ("18", "again", again), ("23", "cpu", cpu)];
                for (figure, measure, value) in figures {
                    let row = json!({ "packets": group, "orders": orders, measure: value });
                    figure_row(&format!("bifrost-fig{figure}"), &row);
                }
                println!("{group:8} {orders:17} {rate:8.1} {again:14.2} {cpu:16.1}");
            }
        }
    }
}

/// Returns the Mb/s, retransmitted segments per MB and processor seconds per GB of one stream.
fn stream(way: Way, group: u16, in_order: bool, seconds: u64) -> [f64; 3] {
    let mut site = Site::changed(way, 4, |config| {
        config.host.group = group;
        config.host.policy = "round-robin".into();
        config.network.in_order = in_order;
    });
    site.shape(&["100Mbps", "80Mbps", "60Mbps", "40Mbps"]);
    let (busy, before) = (machine::busy_seconds(), retransmitted(&site, 0));
    let bulk = Bulk::start(&site, 5001);
    thread::sleep(Duration::from_secs(seconds));
    let end = bulk.now();
    let arrivals = bulk.end();
    let again = (retransmitted(&site, 0) - before) as f64;
    let bytes = arrivals.bytes() as f64;
    [
        arrivals.rate(end / 5, end),
        again / (bytes / 1e6),
        (machine::busy_seconds() - busy) / (bytes / 1e9),
    ]
}

fn retransmitted(site: &Site, end: usize) -> u64 {
    machine::retransmitted(&site.namespace(end))
}

/// Measures eight hosts that send to one, whose switch loses up to 2 % of the tenant's frames, a new share
/// each second.
fn incast(seconds: u64) {
    println!(
        "\neight TCP streams to one tenant that loses 0 to 2 % of its frames, {seconds} s each"
    );
    println!("{:15} {:>8} {:>14}", "way", "Mb/s", "retransmits/MB");
    for way in [Way::Vanilla, Way::Weft] {
        let site = Site::changed(way, 4, |config| config.lab.leaves = 9);
        // The receiver is end 1; the others send.
        let senders: Vec<usize> = (0..9).filter(|&host| host != 1).collect();
        let again = || senders.iter().map(|&host| retransmitted(&site, host)).sum::<u64>();
        let before = again();
        let ports = 5001..;
        let bulks: Vec<Bulk> = senders
            .iter()
            .zip(ports)
            .map(|(&host, port)| Bulk::between(&site, host, port))
            .collect();
        let mut rng = Seed(19).rng();
        for _ in 0..seconds {
            let loss = format!("{:.2}%", rng.unit() * 2.0).parse().expect("a percentage");
            let request = Request::Lose { port: TENANT.into(), loss };
            let answer =
                send_request(&site.trial.control(1), &request).expect("the daemon answers");
            assert_eq!(answer, Answer::Done);
            thread::sleep(Duration::from_secs(1));
        }
        let again = again() - before;
        let bytes: u64 = bulks.into_iter().map(|bulk| bulk.end().bytes()).sum();
        let (bytes, name) = (bytes as f64, way.name());
        let rate = bytes * 8.0 / 1e6 / seconds as f64;
        let again = again as f64 / (bytes / 1e6);
        figure_row("bifrost-fig19", &json!({ "way": name, "rate": rate, "again": again }));
        println!("{name:15} {rate:8.1} {again:14.2}");
    }
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let seconds = arguments.iter().find_map(|word| word.parse().ok());
    let parts: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|word| word.parse::<u64>().is_err()).collect();
    let wanted = |part: &str| parts.is_empty() || parts.contains(&part);
    if wanted("granularity") {
        granularity(seconds.unwrap_or(3));
    }
    if wanted("incast") {
        incast(seconds.unwrap_or(20));
    }
}
