//! The death of a path under tenants' traffic (BIFROST, figure 16): one long TCP stream and Redis, over two paths
//! and four. Needs root, redis-server and redis-benchmark.
//!
//! `cargo bench -p weft-vswitch --bench failover -- [seconds of the lossy path] [dies|flaps|loses|redis|requests ...]
//! [way ...]`
#![allow(clippy::disallowed_methods, reason = "a benchmark runs in real time")]

mod common;
#[path = "failover/requests.rs"]
mod requests;

use std::thread;
use std::time::Duration;

use common::bulk::{Arrivals, Bulk};
use common::{Site, Way};
use weft_lab::{Direction, Impairment};
use weft_testkit::{figure_row, json};

const WAYS: [Way; 5] = [Way::Tcp("cubic"), Way::Vanilla, Way::Probing, Way::Weft, Way::Swift];

const PARTS: [&str; 5] = ["dies", "flaps", "loses", "redis", "requests"];

/// The rate of the links, which the machine can always keep up with, so that missing throughput is due to the
/// network.
const RATE: &str = "400Mbps";

fn pause(span: u64) {
    thread::sleep(Duration::from_millis(span));
}

/// Returns the spine that carries most of the traffic.
fn busiest(site: &Site, spines: usize) -> usize {
    let links = &site.trial.lab.fabric().links;
    let bytes = |spine: usize| {
        let name = format!("l0-s{spine}");
        let index = links.iter().position(|link| link.name == name).expect("a link of the lab");
        site.trial.lab.counters().expect("a lab that is up")[index].forward.bytes
    };
    let before: Vec<u64> = (0..spines).map(bytes).collect();
    pause(300);
    (0..spines).max_by_key(|&spine| bytes(spine) - before[spine]).expect("a spine")
}

/// Prints a stream's rate before, during and after a fault.
fn row(
    label: &str,
    way: Way,
    spines: usize,
    arrivals: &Arrivals,
    wrong: (usize, usize),
    end: usize,
) {
    let (from, to) = wrong;
    let before = arrivals.rate(1000, from);
    let (meanwhile, after) = (arrivals.rate(from, to), arrivals.rate(to, end));
    println!(
        "{label:22} {spines:5} {:15} {before:8.1} {meanwhile:8.1} {:7.0}% {after:8.1} {:9}",
        way.name(),
        meanwhile / before * 100.0,
        arrivals.longest_gap(from, end),
    );
}

/// Measures a link that silently drops everything.
fn dies(way: Way, spines: usize) {
    let mut site = Site::new(way, spines);
    site.shape(&vec![RATE; spines]);
    let bulk = Bulk::start(&site, 5001);
    pause(2500);
    let link = format!("l0-s{}", busiest(&site, spines));
    let from = bulk.now();
    site.trial.lab.set_black_hole(&link, true).expect("a link of the lab");
    pause(3000);
    let to = bulk.now();
    site.trial.lab.set_black_hole(&link, false).expect("a link of the lab");
    pause(2000);
    let end = bulk.now();
    row("a path is dead 3 s", way, spines, &bulk.end(), (from, to), end);
}

/// Measures a link that fails and returns every 100 ms.
fn flaps(way: Way, spines: usize) {
    let mut site = Site::new(way, spines);
    site.shape(&vec![RATE; spines]);
    let bulk = Bulk::start(&site, 5001);
    pause(2500);
    let link = format!("l0-s{}", busiest(&site, spines));
    let from = bulk.now();
    for turn in 0..30 {
        site.trial.lab.set_black_hole(&link, turn % 2 == 0).expect("a link of the lab");
        pause(100);
    }
    let to = bulk.now();
    pause(2000);
    let end = bulk.now();
    row("a path flaps, 100 ms", way, spines, &bulk.end(), (from, to), end);
}

/// Measures a path that loses a tenth of its packets for a long time.
fn loses(way: Way, spines: usize, seconds: u64) {
    let mut site = Site::new(way, spines);
    site.shape(&vec![RATE; spines]);
    let bulk = Bulk::start(&site, 5001);
    pause(2500);
    let link = format!("l0-s{}", busiest(&site, spines));
    let from = bulk.now();
    let rate = Some(RATE.parse().expect("a rate"));
    let healthy = Impairment { rate, ..Impairment::default() };
    let lossy = Impairment { loss: "10%".parse().expect("a percentage"), ..healthy };
    site.trial.lab.impair(&link, Direction::Both, &lossy).expect("a link of the lab");
    pause(seconds * 1000);
    let to = bulk.now();
    site.trial.lab.impair(&link, Direction::Both, &healthy).expect("a link of the lab");
    pause(3000);
    let end = bulk.now();
    let (label, arrivals) = (format!("a path loses 10%, {seconds} s"), bulk.end());
    row(&label, way, spines, &arrivals, (from, to), end);
    let kept = 100.0 * arrivals.rate(from, to) / arrivals.rate(1000, from);
    let gap = arrivals.longest_gap(from, end);
    let way = way.name().replace(',', "");
    figure_row("bifrost-fig16", &json!({ "way": way, "kept": kept, "gap": gap }));
}

/// Measures Redis with 50 connections while a path dies and returns three times.
fn redis(way: Way, spines: usize) {
    let mut site = Site::new(way, spines);
    let server =
        ["--save", "", "--appendonly", "no", "--bind", "0.0.0.0", "--protected-mode", "no"];
    let _server = site.serve("redis-server", &server, 6379);
    let to = site.server();
    let client = ["-h", &to, "-t", "get", "-c", "50", "-n", "150000", "-d", "64"];
    let mut client =
        site.command(0, "redis-benchmark", &client).spawn().expect("it can be started");
    pause(1000);
    for turn in 0..6 {
        let link = format!("l0-s{}", (turn / 2) % spines);
        site.trial.lab.set_black_hole(&link, turn % 2 == 0).expect("a link of the lab");
        pause(500);
    }
    let finished = client.try_wait().expect("a child").is_some();
    let output = client.wait_with_output().expect("it ends");
    let report = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let failed = report.lines().chain(errors.lines()).filter(|line| line.contains("rror")).count();
    let summary = report.lines().skip_while(|line| !line.contains("latency summary")).nth(2);
    let summary: Vec<&str> = summary.into_iter().flat_map(str::split_whitespace).collect();
    let rate =
        report.lines().find_map(|line| line.trim_start().strip_prefix("throughput summary:"));
    println!(
        "{spines:5} {:15} {:>9} {:>8} {:>8} {failed:7}{}",
        way.name(),
        rate.and_then(|line| line.split_whitespace().next()).unwrap_or("-"),
        summary.get(4).unwrap_or(&"-"),
        summary.get(5).unwrap_or(&"-"),
        if finished { "   it had ended before the last" } else { "" },
    );
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let seconds = arguments.iter().find_map(|word| word.parse().ok()).unwrap_or(40);
    let words = arguments.iter().map(String::as_str).filter(|word| word.parse::<u64>().is_err());
    let (parts, names): (Vec<&str>, Vec<&str>) = words.partition(|word| PARTS.contains(word));
    let wanted = |part: &str| parts.is_empty() || parts.contains(&part);
    let named = |way: &Way| names.is_empty() || names.iter().any(|part| way.name() == *part);
    let ways: Vec<Way> = WAYS.into_iter().filter(named).collect();
    if wanted("requests") {
        ways.iter().for_each(|&way| requests::measure(way));
    }
    if parts == ["requests"] {
        return;
    }
    println!(
        "one TCP stream, links of {RATE}; Mb/s; the longest time in which nothing arrived, ms"
    );
    println!(
        "{:22} {:>5} {:15} {:>8} {:>8} {:>8} {:>8} {:>9}",
        "what", "paths", "way", "before", "then", "kept", "after", "gap"
    );
    for spines in [2, 4] {
        for &way in &ways {
            if wanted("dies") {
                dies(way, spines);
            }
            if wanted("flaps") {
                flaps(way, spines);
            }
            if wanted("loses") && spines == 2 {
                loses(way, spines, seconds);
            }
        }
    }
    if wanted("redis") {
        println!(
            "\nredis-benchmark, 50 connections, a path dead for 500 ms three times; milliseconds"
        );
        println!(
            "{:>5} {:15} {:>9} {:>8} {:>8} {:>7}",
            "paths", "way", "req/s", "p99", "most", "errors"
        );
        for spines in [2, 4] {
            ways.iter().for_each(|&way| redis(way, spines));
        }
    }
}
