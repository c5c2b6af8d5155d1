//! `weft sim swarm`: runs random worlds with random faults.

use std::num::NonZeroUsize;
use std::process::ExitCode;

use anyhow::Result;
use weft_report::Unit;
use weft_sim::swarm::{RdmaSummary, Summary, run_rdma_swarm, run_sealed_swarm, run_swarm};

use super::workers;
use crate::progress;
use weft_report::terminal::Output;

/// Number of seeds that CI runs.
const DEFAULT_SEEDS: NonZeroUsize = NonZeroUsize::new(2000).expect("not zero");

/// Options of the cases.
#[derive(Debug, clap::Args)]
pub(super) struct SwarmArgs {
    /// Number of random worlds
    #[arg(long, default_value_t = DEFAULT_SEEDS)]
    seeds: NonZeroUsize,
    /// Seed of the first
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Cases at a time [default: one for each processor]
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Run work requests between RDMA devices instead of messages, about a thousand in each world
    #[arg(long)]
    rdma: bool,
    /// Run hosts that encrypt, most of them with an attacker between them who replays, changes and forges packets
    #[arg(long, conflicts_with = "rdma")]
    sealed: bool,
}

pub(super) fn run(arguments: &SwarmArgs, output: Output) -> Result<ExitCode> {
    let seeds = arguments.seeds.get();
    let bar = progress::counting(seeds, "random worlds");
    let workers = workers(arguments.threads);
    let progress = |done: usize| bar.set_position(done as u64);
    let failed = if arguments.rdma {
        let summary = run_rdma_swarm(arguments.first, seeds, workers, &progress);
        bar.finish_and_clear();
        output.value(&summary, || rdma_text(&summary))?;
        !summary.failures.is_empty()
    } else {
        let summary = if arguments.sealed {
            run_sealed_swarm(arguments.first, seeds, workers, &progress)
        } else {
            run_swarm(arguments.first, seeds, workers, &progress)
        };
        bar.finish_and_clear();
        output.value(&summary, || text(&summary, arguments.sealed))?;
        !summary.failures.is_empty()
    };
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn counted(count: u64) -> String {
    Unit::Count.format(count as f64)
}

fn verdict(failures: usize) -> String {
    match failures {
        0 => "no invariant was violated".to_owned(),
        failures => format!("{failures} failed"),
    }
}

fn rdma_text(summary: &RdmaSummary) -> String {
    let mut text = String::new();
    for (seed, violation) in &summary.failures {
        text += &format!("seed {seed} failed:\n  {violation}\n");
        text += &format!("  again: weft sim swarm --rdma --first {seed} --seeds 1\n");
    }
    for (group, counts) in &summary.counts {
        text += &format!("{group}:\n");
        for (name, count) in counts {
            text += &format!("  {name:40} {:>8}\n", counted(*count));
        }
    }
    text + &format!(
        "swarm: {} seeds from {} on, {} work requests of which {} had to be refused and were; {}",
        summary.seeds,
        summary.first,
        counted(summary.requests),
        counted(summary.refusals),
        verdict(summary.failures.len()),
    )
}

fn text(summary: &Summary, sealed: bool) -> String {
    let mut text = String::new();
    let kind = if sealed { "--sealed " } else { "" };
    for failure in &summary.failures {
        text += &format!("seed {} failed:\n", failure.seed);
        for violation in &failure.violations {
            text += &format!("  {violation}\n");
        }
        text += &format!("  again: weft sim swarm {kind}--first {} --seeds 1\n", failure.seed);
    }
    text + &format!(
        "swarm: {} seeds from {} on, {} packets of which {} were lost and {} forged, {} messages; {}",
        summary.seeds,
        summary.first,
        counted(summary.packets),
        counted(summary.lost),
        counted(summary.forged),
        counted(summary.messages as u64),
        verdict(summary.failures.len()),
    )
}
