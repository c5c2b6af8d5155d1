//! `weft coll`: runs collectives on real packets.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use weft_report::terminal::Output;

mod formula;
mod local;
mod measure;
mod perf;
mod ports;
mod report;

/// Perform collectives between hosts, and measure them
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  weft coll perf --ranks 4                                  four ranks on this machine
  sudo weft coll perf --ranks 4 --lab lab                   each on a host of `weft lab up --leaves 4`
  sudo weft coll perf --ranks 4 --lab lab --ranks-per-host 2 --channels auto   two hosts, memory inside each
  weft coll perf --rank 0 --of 2 --at 10.0.0.1:47000 --token-file job    on one host, and with --rank 1 on another"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Measure collectives as nccl-tests does, and check every result
    #[command(after_help = "\
Examples:
  weft coll perf --ranks 4                                  all_reduce, 8 B to 64 MiB, on this machine
  weft coll perf all --ranks 4 --to 1MiB --json
  weft coll perf all_reduce alltoall --ranks 4 --lab lab --from 1MiB --channels hybrid
  weft coll perf --rank 0 --of 4 --at 10.0.0.1:47000 --token-file job    on every host, each with its rank
  weft coll perf --rank 1 --hosts 10.0.0.1:47000,10.0.0.2:47000 --token-file job --type bfloat16 --op avg

Ranks of several hosts show each other the job's token, a file of `weft adm token job` that every host has a copy of.
Columns and formulas are those of nccl-tests: time is the mean over ranks and iterations, algbw is size over
time, busbw what a link carries of it. Collectives work in place.")]
    Perf(Box<perf::Args>),
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    match arguments.verb {
        Verb::Perf(arguments) => perf::run(&arguments, output),
    }
}
