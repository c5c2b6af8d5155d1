//! Simulator speed on the fabric of the published comparisons: 128 hosts, 8 leaves, 8 spines, storage
//! traffic at 80 % load, as the public ns-3 models of ConWeave run it.
//!
//! `cargo bench -p weft-sim --bench leaf_spine -- run [ms]`, 100 ms of arrivals by default; `cargo bench -p weft-sim
//! --bench leaf_spine -- sweep [ms]`, 16 runs of 1 ms, on one thread and on one for each processor; without arguments
//! both.
//!
//! A packet-hop is one packet (data, ACK, control) serialised on one link. The time of a run is the process's own
//! processor time, set-up included; the time of a sweep is wall-clock time, so that nothing else should run beside it.

use std::path::Path;
use std::thread::available_parallelism;
use std::time::Instant;

use weft_sim::batch::Job;
use weft_sim::bench::{peak_resident_bytes, process_cpu_nanos};
use weft_sim::{Scenario, run, run_all};
use weft_testkit::{figure_row, json};
use weft_units::Seed;

/// Number of runs of the sweep.
const RUNS: u64 = 16;

/// Nanoseconds per packet-hop of ns-3 on its reference run, the same fabric and traffic at 50 %: as published, and
/// without the parts that its result does not need.
const NS3_NANOS_PER_HOP: [f64; 2] = [5349.0, 4086.0];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let requested = |mode: &str| arguments.iter().any(|argument| argument == mode);
    let millis = arguments.iter().find_map(|argument| argument.parse::<u32>().ok());
    let both = !requested("run") && !requested("sweep");
    if both || requested("run") {
        single_run(millis.unwrap_or(100));
    }
    if both || requested("sweep") {
        sweep(millis.unwrap_or(1));
    }
}

fn scenario(millis: u32) -> Scenario {
    let text = format!(
        r#"
        topology = {{ kind = "leaf-spine", leaves = 8, spines = 8, hosts_per_leaf = 16 }}
        transport = {{ profile = "irn" }}
        buffer = {{ size = "9MiB" }}
        port = {{ kind = "priority", mark_at = "dequeue", reserved = "2096B" }}
        measure = {{ sample_every = "0us" }}
        run = {{ limit = "10s" }}

        [[workload]]
        kind = "poisson"
        sizes = "ali-storage"
        load = 0.8
        load_of = "uplinks"
        duration = "{millis}ms"
        "#
    );
    Scenario::parse(&text, Path::new("")).expect("it is a scenario")
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn single_run(millis: u32) {
    let used = process_cpu_nanos();
    let (report, wall) = timed(|| run(&scenario(millis), Seed(1)).expect("it can be run"));
    let cpu = (process_cpu_nanos() - used) as f64;
    assert!(report.finished, "every flow finishes within 10 s");
    let (flows, hops) = (report.workloads[0].flows.finished, report.network.packet_hops);
    let (nanos, peak) = (cpu / hops as f64, peak_resident_bytes());
    println!("{millis} ms of arrivals at 80 %: {flows} flows, {hops} packet-hops");
    println!("{:.1} s of processor time, {wall:.1} s by the clock", cpu / 1e9);
    println!("{nanos:.0} ns a packet-hop, {:.2} million a second", 1e3 / nanos);
    let row = json!({ "arrivals": format!("{millis} ms"), "flows": flows, "nanos": nanos, "bytes": peak });
    figure_row("perf-simulator-flows", &row);
    println!("{} MB at most, {} bytes a flow", peak / 1_000_000, peak / flows);
    let [published, stripped] = NS3_NANOS_PER_HOP.map(|theirs| theirs / nanos);
    println!("ns-3's 5349 ns are {published:.1} times as many, its 4086 ns {stripped:.1} times");
}

fn sweep(millis: u32) {
    let scenario = scenario(millis);
    let jobs = (1..=RUNS).map(|seed| Job { scenario: scenario.clone(), seed: Seed(seed) });
    let jobs: Vec<Job> = jobs.collect();
    let seconds = |workers: usize| {
        let (reports, seconds) = timed(|| run_all(&jobs, workers, &|_| {}));
        assert!(reports.iter().all(Result::is_ok), "all can be run");
        seconds
    };
    let workers = available_parallelism().map_or(1, usize::from);
    let (alone, together) = (seconds(1), seconds(workers));
    println!(
        "{RUNS} runs of {millis} ms: {alone:.1} s on one thread, {together:.1} s on {workers}"
    );
    println!("{:.2} times as fast", alone / together);
}

/// Returns the result of `work`, and its wall-clock seconds.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let began = Instant::now();
    let done = work();
    (done, began.elapsed().as_secs_f64())
}
