//! `weft sim`: simulates fabrics without hardware; the same seed gives the same bytes.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::available_parallelism;

use anyhow::Result;
use clap::Subcommand;

use crate::files::{locate, read_scenario};
use weft_report::terminal::Output;

mod batch;
mod compare;
mod import;
mod list;
mod page;
mod perfetto;
mod run;
mod swarm;
mod watch;

pub(crate) use batch::{Batch, Seeds};

/// Simulate a fabric, packet by packet, with the engine that real packets use
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  weft sim list                                           scenarios, here and in the program
  weft sim run incast                                     one of them: tables of the results
  weft sim run mine.toml --set transport.paths=16 --html out/mine.html
  weft sim compare mine.toml --balancers ecmp,oblivious --seeds 5
  weft sim show mine.toml                                 with every default filled in
  weft sim import job.0.et --out job.toml                 a scenario from another simulator's input
  weft sim swarm --seeds 10000                            random worlds, every invariant checked"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a scenario and report the results
    #[command(after_help = "\
Examples:
  weft sim run experiments/stellar-fig9.toml
  weft sim run mine.toml --seed 7 --json > result.json        the same bytes every time
  weft sim run mine.toml --seeds 8 --threads 4                eight runs, four at a time
  weft sim run mine.toml --set transport.policy=dwrr --set workload.0.size=1MB
  weft sim run mine.toml --csv > flows.csv                    one line for each flow
  weft sim run mine.toml --html out/mine.html                 a page: links over time, messages, queues
  weft sim run mine.toml --perfetto out/mine.perfetto         a trace for ui.perfetto.dev

The result names the scenario with every default filled in, so that it can be run again.")]
    Run(run::RunArgs),
    /// Run several balancers on the same arrivals and compare their flows' completion times
    #[command(after_help = "\
Examples:
  weft sim compare scenarios/balancers.toml                   the variants the file names
  weft sim compare mine.toml --balancers ecmp,least-queued,oblivious
  weft sim compare mine.toml --balancers single,oblivious+dctcp   a policy with another control
  weft sim compare scenarios/balancers.toml --loads 50%,80% --seeds 5 --html out/loads.html
  weft sim compare mine.toml --topologies leaf-spine,leaf-spine:spines=4
  weft sim compare mine.toml --runs out/runs.csv --flows out/flows.parquet
  weft sim compare mine.toml --json > result.json             the same bytes every time
  weft sim compare mine.toml --shard 1/4 --part out/1.json    a quarter of it; weft sim merge joins them

A balancer is a [[variant]] of the scenario, a path policy (weft list policies), a switch model
(weft list switches; hosts then keep each connection on one path), a congestion control
(weft list congestion), or several joined by `+`. All other settings are the same for all balancers: with the same
seed each carries the same flows. With several seeds, ± is half of the 95 % confidence interval of
the mean over them (Student's t).")]
    Compare(compare::CompareArgs),
    /// Join the results of all shards of a comparison
    #[command(after_help = "\
Examples:
  weft sim compare balancers --seeds 8 --shard 1/2 --part out/1.json     on one machine
  weft sim compare balancers --seeds 8 --shard 2/2 --part out/2.json     on another
  weft sim merge out/1.json out/2.json                                   the table of the whole
  weft sim merge out/*.json --json > result.json                         the same bytes as of one machine")]
    Merge(compare::MergeArgs),
    /// Print a scenario with every default filled in
    #[command(after_help = "\
Example:
  weft sim show experiments/stellar-fig9.toml --set transport.paths=4 > mine.toml")]
    Show {
        /// The scenario (or experiment): a file, or a name such as incast
        scenario: PathBuf,
        /// Replace a value; may be given again
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
    },
    /// Read an input of another simulator, or a trace of a job, and write a scenario that runs it
    #[command(after_help = "\
Examples:
  weft sim import alltoall.cm                         what it has, and a scenario
  weft sim import traces/llama.0.et --out llama.toml  a Chakra trace, all ranks
  weft sim import matrix.cm --set start_unit=ps       start times as NDP reads them
  weft sim run llama.toml

Formats: connection matrices of htsim, execution traces of MLCommons Chakra, GOAL as text or binary, workloads of SimAI,
flows and topologies of the ns-3 RDMA simulators and of SimAI; all but topologies may be compressed by gzip.")]
    Import(import::ImportArgs),
    /// List scenarios: the files of this folder, and those that are part of the program
    #[command(after_help = "\
Examples:
  weft sim list
  weft sim list ~/scenarios --json")]
    List {
        /// Folders to look in [default: scenarios, experiments, and the program]
        folders: Vec<PathBuf>,
    },
    /// Run random worlds with random faults and check every invariant
    #[command(after_help = "\
Examples:
  weft sim swarm --seeds 2000
  weft sim swarm --first 8191 --seeds 1       one case again, as a failure names it
  weft sim swarm --rdma --seeds 5000          five million RDMA work requests

Exit code 1 when a case fails; each is printed with the command that runs it again.")]
    Swarm(swarm::SwarmArgs),
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    match arguments.verb {
        Verb::Run(arguments) => run::run(&arguments, output)?,
        Verb::Compare(arguments) => compare::run(&arguments, output)?,
        Verb::Merge(arguments) => compare::merge(&arguments, output)?,
        Verb::Show { scenario, set } => {
            let expanded = read_scenario(&locate(&scenario), &set)?.expanded()?;
            output.value(&expanded, || expanded.clone())?;
        }
        Verb::Import(arguments) => import::run(&arguments, output)?,
        Verb::List { folders } => list::list(&folders, output)?,
        Verb::Swarm(arguments) => return swarm::run(&arguments, output),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the number of threads for independent runs: `requested`, or one for each processor.
pub(crate) fn workers(requested: Option<NonZeroUsize>) -> usize {
    requested.or_else(|| available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}
