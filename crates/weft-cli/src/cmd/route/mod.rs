//! `weft route`: which way flows take, and how they are steered.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::output::Output;

mod agent;
mod explain;
mod metrics;
mod serve;
mod simulate;
mod source;
mod steer;
mod tables;

/// Follow flows through what routers have installed, and steer them where links are crowded
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  sudo weft route explain '10.1.0.2:49152>10.2.0.2' --lab lab   hop by hop, with hashes and shares
  sudo weft route tables --lab lab > installed.toml             what all routers have installed
  sudo weft route agent --lab lab                               sFlow of a lab's routers
  sudo weft route serve --config route.toml                     the controller, with a page
  sudo weft route move l0 10.2.0.2 --by s1 --lab lab --dry-run  one move by hand
  weft route simulate --gpus 4096                               a cluster with the controller and without

docs/routing.md has the configuration."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Say which way a flow takes, and what decides it at every router
    Explain(explain::Explain),
    /// Read what routers have installed, and print it as a file that `--installed` takes
    Tables(tables::Tables),
    /// Move a destination to other ports of a router, or take that back
    Move(steer::Move),
    /// Sample the packets of Linux routers and send sFlow
    Agent(agent::Agent),
    /// Watch a fabric and steer it until interrupted
    Serve(serve::Serve),
    /// Run a whole cluster at the level of flows, with the controller and without
    Simulate(simulate::Simulate),
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    match arguments.verb {
        Verb::Explain(arguments) => explain::run(&arguments, output),
        Verb::Tables(arguments) => tables::run(&arguments, output),
        Verb::Move(arguments) => steer::run(&arguments, output),
        Verb::Agent(arguments) => agent::run(&arguments, output),
        Verb::Serve(arguments) => serve::run(arguments, output),
        Verb::Simulate(arguments) => simulate::run(&arguments, output),
    }
}
