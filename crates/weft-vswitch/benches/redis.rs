//! Redis through a network that loses packets (BIFROST, figures 20, E8, E9 and F11): 50 persistent connections,
//! GET and SET of 64 bytes, for each way to carry them, in several rounds: a machine's load changes
//! from minute to minute, and one round would compare loads. Needs root, redis-server and redis-benchmark.
//!
//! `cargo bench -p weft-vswitch --bench redis -- [requests] [rounds, as 3x] [clients, as 200c] [short] [loss ...] [way ...]`
//!
//! With `short` each request has a connection of its own (figure E8).
//!
//! `... -- trace [requests] [loss] [way]` shows in which parts requests spend their time: all, and the slowest.
#![allow(clippy::disallowed_methods, reason = "a benchmark runs in real time")]

mod common;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use common::trace::Trace;
use common::{Server, Site, Way, machine};
use weft_testkit::{figure_row, json};
use weft_udp::sockets::CaptureConfig;

/// The server's port.
const PORT: u16 = 6379;

/// The results that redis-benchmark printed for one test.
#[derive(Clone, Copy)]
struct Row {
    requests_per_second: f64,
    average: f64,
    p50: f64,
    p99: f64,
    p999: f64,
    most: f64,
}

/// Parses one test of `redis-benchmark`'s full report.
fn parse(report: &str) -> Row {
    let number = |line: &str| line.split_whitespace().find_map(|word| word.parse::<f64>().ok());
    let after = |label: &str| {
        let line = report.lines().find(|line| line.trim_start().starts_with(label));
        number(line.unwrap_or_else(|| panic!("no {label:?} in {report}"))).expect("a number")
    };
    let mut lines = report.lines().skip_while(|line| !line.contains("latency summary"));
    let summary: Vec<f64> = lines
        .nth(2)
        .into_iter()
        .flat_map(str::split_whitespace)
        .filter_map(|word| word.parse().ok())
        .collect();
    let [average, _least, p50, _p95, p99, most] = summary[..] else {
        panic!("no summary in {report}")
    };
    // "99.902% <= 1.103 milliseconds (cumulative count 199805)", the first at or past 99.9 %.
    let percentile = |line: &str| {
        let (percent, rest) = line.split_once("% <= ")?;
        Some((percent.parse::<f64>().ok()?, number(rest)?))
    };
    let p999 = report.lines().filter_map(percentile).find(|row| row.0 >= 99.9).map(|row| row.1);
    Row {
        requests_per_second: after("throughput summary:"),
        average,
        p50,
        p99,
        p999: p999.expect("the report ends at 100 %"),
        most,
    }
}

/// The load on the server.
struct Load {
    requests: u64,
    clients: u64,
    /// `true` if each request has a connection of its own.
    short: bool,
}

impl Load {
    fn measure(&self, site: &Site, test: &str) -> Row {
        let (server, clients) = (site.server(), self.clients.to_string());
        let (requests, keep) = (self.requests.to_string(), u8::from(!self.short).to_string());
        let arguments = ["-h", &server, "-t", test, "-c", &clients, "-k", &keep, "-n", &requests];
        let arguments = [&arguments[..], &["-d", "64", "-r", "10000"]].concat();
        parse(&site.output(0, "redis-benchmark", &arguments))
    }
}

impl Load {
    /// Writes rows of the paper's figures that this load belongs to, one for each round.
    fn figures(&self, loss: &str, test: &str, way: Way, row: &Row) {
        let figures: &[&str] = match (self.short, self.clients, loss) {
            (true, ..) => &["E8"],
            (false, 200, _) => &["F11"],
            (false, _, "0%") => &["20", "E9"],
            (false, ..) => &["20"],
        };
        for figure in figures {
            let values = json!({
                "loss": loss, "test": test, "way": way.name().replace(',', ""),
                "rate": row.requests_per_second, "average": row.average, "p50": row.p50,
                "p99": row.p99, "p999": row.p999, "most": row.most,
            });
            figure_row(&format!("bifrost-fig{figure}"), &values);
        }
    }
}

fn serve(site: &Site) -> Server {
    let options =
        ["--save", "", "--appendonly", "no", "--bind", "0.0.0.0", "--protected-mode", "no"];
    site.serve("redis-server", &options, PORT)
}

/// Runs this program again with its sockets captured, as the environment requests.
fn trace_in_child() {
    let file = std::env::temp_dir().join(format!("{}.sockets", common::name::own()));
    let own = std::env::current_exe().expect("a program that runs");
    let mut child = Command::new(own);
    child.args(std::env::args().skip(1)).env(CaptureConfig::FILE, file);
    // The headers of both networks and of the segment.
    child.env(CaptureConfig::SNAP, "192");
    assert!(child.status().expect("it can be started").success());
}

/// Prints the time that requests spend in each part.
fn trace(load: &Load, test: &str, loss: &str, way: Way) {
    let Some(CaptureConfig { file, .. }) = CaptureConfig::from_environment() else {
        return trace_in_child();
    };
    let [short, long] = machine::pauses(Duration::from_secs(8), [1, 4].map(Duration::from_millis));
    println!("before: {short:.2} % of the time in pauses of over 1 ms, {long:.2} % over 4 ms");
    let mut site = Site::new(way, 4);
    let _server = serve(&site);
    site.lose(loss);
    let trace = Trace::begin(&site, file, PORT);
    print(loss, test, way, &load.measure(&site, test));
    trace.end(&site);
}

/// Returns the median of each column.
fn median(rows: &[Row]) -> Row {
    let middle = |column: fn(&Row) -> f64| {
        let mut values: Vec<f64> = rows.iter().map(column).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Row {
        requests_per_second: middle(|row| row.requests_per_second),
        average: middle(|row| row.average),
        p50: middle(|row| row.p50),
        p99: middle(|row| row.p99),
        p999: middle(|row| row.p999),
        most: middle(|row| row.most),
    }
}

fn print(loss: &str, test: &str, way: Way, row: &Row) {
    println!(
        "{loss:5} {test:4} {:15} {:9.0} {:8.3} {:8.3} {:8.3} {:8.3} {:8.3}",
        way.name(),
        row.requests_per_second,
        row.average,
        row.p50,
        row.p99,
        row.p999,
        row.most
    );
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let counted = |word: &str, unit: &str| word.strip_suffix(unit)?.parse::<u64>().ok();
    let given = |unit: &str| arguments.iter().find_map(|word| counted(word, unit));
    let load = Load {
        requests: given("").unwrap_or(60_000),
        clients: given("c").unwrap_or(50),
        short: arguments.iter().any(|word| word == "short"),
    };
    let rounds = given("x").unwrap_or(1).max(1);
    let losses: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|word| word.ends_with('%')).collect();
    let losses = if losses.is_empty() { vec!["0%", "0.1%", "0.5%", "1%", "2%"] } else { losses };
    let is_count = |word: &str| ["", "x", "c"].iter().any(|unit| counted(word, unit).is_some());
    let is_name = |word: &&String| {
        !(word.ends_with('%') || is_count(word) || ["short", "trace"].contains(&word.as_str()))
    };
    let wanted: Vec<&String> = arguments.iter().filter(is_name).collect();
    let is_wanted = |way: &Way| {
        wanted.is_empty() || wanted.iter().any(|part| way.name().contains(part.as_str()))
    };
    let ways: Vec<Way> = Way::ALL.iter().copied().filter(is_wanted).collect();
    if arguments.iter().any(|word| word == "trace") {
        let way = ways.into_iter().find(|way| way.has_daemon());
        return trace(&load, "get", losses[0], way.expect("a way of ours"));
    }
    let Load { requests, clients, short } = load;
    let kind = if short { "clients, a connection each request" } else { "persistent connections" };
    println!("redis-benchmark, {clients} {kind}, {requests} requests of 64 bytes; milliseconds");
    println!(
        "{:5} {:4} {:15} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "loss", "test", "way", "req/s", "average", "p50", "p99", "p99.9", "most"
    );
    let mut measured = BTreeMap::<_, Vec<Row>>::new();
    for _ in 0..rounds {
        for (index, &way) in ways.iter().enumerate() {
            let mut site = Site::new(way, 4);
            let _server = serve(&site);
            for (at, &loss) in losses.iter().enumerate() {
                site.lose(loss);
                for test in ["get", "set"] {
                    let row = load.measure(&site, test);
                    print(loss, test, way, &row);
                    load.figures(loss, test, way, &row);
                    measured.entry((test, at, index)).or_default().push(row);
                }
            }
        }
    }
    if rounds > 1 {
        println!("the medians of {rounds} rounds");
        for ((test, loss, way), rows) in &measured {
            print(losses[*loss], test, ways[*way], &median(rows));
        }
    }
}
