//! `weft route`: which way flows take, and how they are steered.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::output::Output;

mod simulate;

/// Steer flows where links are crowded
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  weft route simulate --gpus 4096               a cluster with and without the controller"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a whole cluster at the level of flows, with the controller and without
    Simulate(simulate::Simulate),
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    match arguments.verb {
        Verb::Simulate(arguments) => simulate::run(&arguments, output),
    }
}
