//! Two elephant flows from one host to another, repeated (BIFROST, figure 15): the aggregate throughput of
//! two TCP streams over two paths, percentiles of the runs. Needs root.
//!
//! `cargo bench -p weft-vswitch --bench elephants -- [runs] [milliseconds a run] [way ...]`
#![allow(clippy::disallowed_methods, reason = "a benchmark runs in real time")]

mod common;

use std::thread;
use std::time::Duration;

use common::bulk::Bulk;
use common::{Site, Way};
use weft_testkit::{figure_row, json};

const WAYS: [Way; 7] = [
    Way::Tcp("cubic"),
    Way::Vanilla,
    Way::OnePath,
    Way::Probing,
    Way::Weft,
    Way::Swift,
    Way::FixedWindow,
];

/// The rate of each of the receiver's ports; the machine can always carry both.
const RATE: &str = "100Mbps";

/// Number of runs on one fabric before the next is built, which takes about a second.
const RUNS_PER_SITE: u64 = 5;

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let mut numbers = arguments.iter().filter_map(|word| word.parse::<u64>().ok());
    let (runs, span) = (numbers.next().unwrap_or(100), numbers.next().unwrap_or(1000));
    let wanted: Vec<_> = arguments.iter().filter(|word| word.parse::<u64>().is_err()).collect();
    println!(
        "two TCP streams over two paths of {RATE}, {runs} runs of {span} ms: Mb/s of both together"
    );
    println!(
        "{:15} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}",
        "way", "least", "p10", "p50", "p90", "most", "mean"
    );
    for way in WAYS {
        if !wanted.is_empty() && !wanted.iter().any(|part| way.name() == **part) {
            continue;
        }
        let mut sums = Vec::new();
        for site in 0..runs.div_ceil(RUNS_PER_SITE) {
            // The kernel hashes the overlay's ports onto the paths differently on each fabric.
            let mut fabric = Site::new(way, 2);
            fabric.shape(&[RATE; 2]);
            let first = site * RUNS_PER_SITE;
            let runs = first..runs.min(first + RUNS_PER_SITE);
            sums.extend(runs.map(|run| both(&fabric, run, span)));
        }
        sums.sort_unstable_by(f64::total_cmp);
        let at = |percent: usize| sums[(sums.len() - 1) * percent / 100];
        for (name, percent) in [("least", 0), ("p10", 10), ("p50", 50), ("p90", 90)] {
            // The name has no comma: sentences of the docs list ways by name.
            let row =
                json!({ "way": way.name().replace(',', ""), "at": name, "rate": at(percent) });
            figure_row("bifrost-fig15", &row);
        }
        println!(
            "{:15} {:7.1} {:7.1} {:7.1} {:7.1} {:7.1} {:7.1}",
            way.name(),
            at(0),
            at(10),
            at(50),
            at(90),
            at(100),
            sums.iter().sum::<f64>() / sums.len() as f64
        );
    }
}

/// Runs two streams at once. Returns their rate without the first fifth of the time, Mb/s.
fn both(site: &Site, run: u64, span: u64) -> f64 {
    let port = 5001 + 2 * u16::try_from(run % 20_000).expect("under 20,000");
    let streams = [Bulk::start(site, port), Bulk::start(site, port + 1)];
    thread::sleep(Duration::from_millis(span));
    let rates = streams.map(|stream| {
        let end = stream.now();
        stream.end().rate(end / 5, end)
    });
    rates.iter().sum()
}
