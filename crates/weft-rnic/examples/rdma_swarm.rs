//! Runs cases of the RDMA swarm: `cargo run --release -p weft-rnic --features swarm --example rdma_swarm -- 0 2000`.
//! Stops at the first that fails.

use std::process::ExitCode;

use weft_rnic::swarm::{Tally, run_case};

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).filter_map(|arg| arg.parse::<u64>().ok());
    let (first, count) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(100));
    let mut all = Tally::default();
    for seed in first..first + count {
        // A panic must not go without its seed.
        let outcome = std::panic::catch_unwind(|| run_case(seed));
        let violation = match outcome {
            Ok(Ok(tally)) => {
                all += &tally;
                continue;
            }
            Ok(Err(violation)) => violation.to_string(),
            Err(_) => "panic".into(),
        };
        println!("seed: {seed}\nviolations: \n{violation}");
        return ExitCode::FAILURE;
    }
    println!("{} requests, {} refusals: {all:#?}", all.total_requests(), all.total_refusals());
    ExitCode::SUCCESS
}
