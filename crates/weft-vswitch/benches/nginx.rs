//! nginx through a network that loses packets (BIFROST, figure 21): `ab` with 50 clients at a time, a new
//! connection for each request, for each way to carry them. Needs root, nginx and ab.
//!
//! `cargo bench -p weft-vswitch --bench nginx -- [requests] [loss ...] [way ...]`
#![allow(clippy::disallowed_methods, reason = "a benchmark runs in real time")]

mod common;

use std::fs;
use std::path::Path;

use common::{Site, Way};
use weft_testkit::{figure_row, json};

/// The results that `ab` printed.
struct Row {
    requests_per_second: f64,
    mean: f64,
    p99: f64,
    most: f64,
    failed: f64,
}

fn parse(report: &str) -> Row {
    let after = |label: &str| -> f64 {
        let line = report.lines().find_map(|line| line.trim_start().strip_prefix(label));
        let line = line.unwrap_or_else(|| panic!("no {label:?} in {report}"));
        line.split_whitespace().next().expect("a number").parse().expect("a number")
    };
    Row {
        requests_per_second: after("Requests per second:"),
        mean: after("Time per request:"),
        p99: after("99%"),
        most: after("100%"),
        failed: after("Failed requests:"),
    }
}

/// Writes the configuration of an nginx in its own folder, independent of the machine's nginx. Returns its
/// path.
fn configure(folder: &Path) -> String {
    fs::create_dir_all(folder).expect("a folder for nginx");
    fs::write(folder.join("page"), [b'x'; 64]).expect("a page");
    let at = folder.display();
    let text = format!(
        "worker_processes 1; daemon off; pid {at}/pid; error_log {at}/errors;\n\
         events {{ worker_connections 4096; }}\n\
         http {{ access_log off; server {{ listen 8080 backlog=4096; root {at}; }} }}\n"
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, text).expect("a configuration");
    file.display().to_string()
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let requests = arguments.first().map_or("10000", String::as_str);
    let losses: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|word| word.ends_with('%')).collect();
    let losses = if losses.is_empty() { vec!["0%", "0.5%", "1%", "2%"] } else { losses };
    let wanted: Vec<&str> =
        arguments.iter().skip(1).map(String::as_str).filter(|word| !word.ends_with('%')).collect();
    let folder = std::env::temp_dir().join(common::name::own());
    let file = configure(&folder);
    println!("ab, 50 at a time, {requests} requests, a connection each; milliseconds");
    println!(
        "{:5} {:15} {:>9} {:>8} {:>8} {:>8} {:>7}",
        "loss", "way", "req/s", "mean", "p99", "most", "failed"
    );
    for way in [Way::Tcp("cubic"), Way::ShortTimeout, Way::Vanilla, Way::Weft] {
        if !wanted.is_empty() && !wanted.iter().any(|part| way.name().contains(part)) {
            continue;
        }
        let mut site = Site::new(way, 4);
        let _server = site.serve("nginx", &["-c", &file], 8080);
        for loss in &losses {
            site.lose(loss);
            let url = format!("http://{}:8080/page", site.server());
            let arguments = ["-q", "-n", requests, "-c", "50", "-s", "60", &url];
            let row = parse(&site.output(0, "ab", &arguments));
            let values = json!({
                "loss": loss, "way": way.name().replace(',', ""), "rate": row.requests_per_second,
                "average": row.mean, "p99": row.p99, "most": row.most, "failed": row.failed,
            });
            figure_row("bifrost-fig21", &values);
            println!(
                "{loss:5} {:15} {:9.0} {:8.1} {:8.0} {:8.0} {:7.0}",
                way.name(),
                row.requests_per_second,
                row.mean,
                row.p99,
                row.most,
                row.failed
            );
        }
    }
    fs::remove_dir_all(&folder).expect("made at the beginning");
}
