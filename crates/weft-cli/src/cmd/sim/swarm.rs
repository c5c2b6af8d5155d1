//! `weft sim swarm`.

use std::num::NonZeroUsize;
use std::process::ExitCode;

use anyhow::Result;
use weft_report::Unit;
use weft_sim::swarm::{Summary, run_swarm};

use super::workers;
use crate::output::Output;
use crate::progress;

/// What CI runs.
const DEFAULT_SEEDS: NonZeroUsize = NonZeroUsize::new(2000).expect("not zero");

/// Which cases.
#[derive(Debug, clap::Args)]
pub(super) struct SwarmArgs {
    /// How many random worlds
    #[arg(long, default_value_t = DEFAULT_SEEDS)]
    seeds: NonZeroUsize,
    /// Seed of the first
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Cases at a time [default: one for each processor]
    #[arg(long)]
    threads: Option<NonZeroUsize>,
}

pub(super) fn run(arguments: &SwarmArgs, output: Output) -> Result<ExitCode> {
    let seeds = arguments.seeds.get();
    let bar = progress::counting(seeds, "random worlds");
    let workers = workers(arguments.threads);
    let summary = run_swarm(arguments.first, seeds, workers, |done| {
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    output.value(&summary, || text(&summary))?;
    Ok(if summary.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn text(summary: &Summary) -> String {
    let mut text = String::new();
    for failure in &summary.failures {
        text += &format!("seed {} failed:\n", failure.seed);
        for violation in &failure.violations {
            text += &format!("  {violation}\n");
        }
        text += &format!("  again: weft sim swarm --first {} --seeds 1\n", failure.seed);
    }
    let count = |count: u64| Unit::Count.format(count as f64);
    let failed = match summary.failures.len() {
        0 => "no invariant was violated".to_owned(),
        failures => format!("{failures} failed"),
    };
    text + &format!(
        "swarm: {} seeds from {} on, {} packets of which {} were lost, {} messages; {failed}",
        summary.seeds,
        summary.first,
        count(summary.packets),
        count(summary.lost),
        count(summary.messages as u64),
    )
}
