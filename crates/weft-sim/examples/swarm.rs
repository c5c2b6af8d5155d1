//! Runs the swarm from the command line: `cargo run --release -p weft-sim --example swarm -- 0 2000`, or with hosts
//! that encrypt: `... -- 0 2000 sealed`.

use std::process::ExitCode;

use weft_sim::swarm::{run_sealed_swarm, run_swarm};

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).filter_map(|arg| arg.parse::<u64>().ok());
    let (first, count) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(2_000));
    let workers = std::thread::available_parallelism().map_or(1, Into::into);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let is_sealed = std::env::args().any(|arg| arg == "sealed");
    let summary = if is_sealed {
        run_sealed_swarm(first, count, workers, &|_| {})
    } else {
        run_swarm(first, count, workers, &|_| {})
    };
    println!("{summary:#?}");
    if summary.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
