//! Memory and set-up time of idle connections, encrypted as by default and in the clear.
//! `cargo bench -p weft-perf --bench idle -- [CONNECTIONS]` sets up 100,000 connections by default, each way in its own
//! process, and prints a table and a line of JSON for each.

use std::process::{Command, exit};

use weft_perf::idle::{IdleReport, measure};
use weft_udp::SealConfig;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let (way, connections) = match &arguments[..] {
        [] => (None, Ok(100_000)),
        [number] => (None, number.parse()),
        [number, way] => (Some(way.as_str()), number.parse()),
        _ => usage(),
    };
    let Ok(connections) = connections else { usage() };
    match way {
        None => ["encrypted", "clear"].into_iter().for_each(|way| measure_apart(connections, way)),
        Some(way @ "encrypted") => measure_here(connections, way, &SealConfig::default()),
        Some(way @ "clear") => measure_here(connections, way, &SealConfig::off()),
        Some(_) => usage(),
    }
}

fn usage() -> ! {
    eprintln!("usage: idle [CONNECTIONS]");
    exit(2);
}

/// Measures in another process, because an allocator keeps freed memory and would change the next measurement.
fn measure_apart(connections: u32, way: &str) {
    let program = std::env::current_exe().expect("a running program has a path");
    let status = Command::new(program).args([&connections.to_string(), way]).status();
    if !status.is_ok_and(|status| status.success()) {
        exit(1);
    }
}

fn measure_here(connections: u32, way: &str, encryption: &SealConfig) {
    let report = match measure(connections, encryption, |_| {}) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("{error}");
            exit(1);
        }
    };
    print_table(way, &report);
    println!("{}", serde_json::to_string(&report).expect("numbers"));
}

#[expect(clippy::cast_precision_loss, reason = "printed, not computed with")]
fn print_table(way: &str, report: &IdleReport) {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "{way}: {} connections over loopback, both ends in this process, set up in {:.1} s",
        report.connections, report.setup_seconds
    );
    println!("{:<34} {:>12} {:>18} {:>12}", "", "resident MiB", "bytes/connection", "bytes/end");
    println!("{:<34} {:>12.1}", "before", mib(report.resident_before));
    for (state, resident, bytes) in [
        ("set up, idle", report.resident_idle, report.bytes_per_connection()),
        (
            "after a message each, and 2 s rest",
            report.resident_rested,
            report.bytes_per_rested_connection(),
        ),
    ] {
        println!("{state:<34} {:>12.1} {bytes:>18.0} {:>12.0}", mib(resident), bytes / 2.0);
    }
}
