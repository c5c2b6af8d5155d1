//! Runs a scenario exactly and with fast-forward, and prints the time of each and the errors:
//! `cargo run --release -p weft-sim --example fast_forward -- FILE [--fast-only] [--seed N]`.

use std::path::Path;

use weft_sim::bench::{peak_resident_bytes, process_cpu_nanos};
use weft_sim::fast_forward::DEFAULT_THRESHOLD;
use weft_sim::memory::prefer_huge_pages;
use weft_sim::report::Comparison;
use weft_sim::{Report, Scenario, run};
use weft_units::Seed;

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn timed(scenario: &Scenario, seed: u64) -> (Report, f64) {
    let began = process_cpu_nanos();
    let report = run(scenario, Seed(seed)).expect("a valid scenario");
    (report, (process_cpu_nanos() - began) as f64 / 1e9)
}

fn main() {
    prefer_huge_pages();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let file = arguments.first().expect("the scenario's file");
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    let seed = arguments.iter().skip_while(|argument| *argument != "--seed").nth(1);
    let seed = seed.map_or(1, |seed| seed.parse().expect("a number"));
    let mut scenario = Scenario::read(Path::new(file)).expect("a valid scenario");
    scenario.run.fast_forward.get_or_insert(DEFAULT_THRESHOLD);
    let (fast, seconds) = timed(&scenario, seed);
    println!(
        "fast: {seconds:.2} s of processor time, {} packet-hops, {:.1} us, finished: {}, {} MB",
        fast.network.packet_hops,
        fast.simulated_us,
        fast.finished,
        peak_resident_bytes() / 1_000_000,
    );
    println!("{:#?}", fast.fast_forward);
    for workload in &fast.workloads {
        println!("{:#?}", workload.iterations.first());
    }
    if has("--fast-only") {
        return;
    }
    scenario.run.fast_forward = None;
    let (exact, exact_seconds) = timed(&scenario, seed);
    println!(
        "exact: {exact_seconds:.2} s of processor time, {} packet-hops, {:.1} us",
        exact.network.packet_hops, exact.simulated_us
    );
    println!("factor: {:.1}", exact_seconds / seconds);
    println!("{:#?}", Comparison::new(&exact, &fast));
}
