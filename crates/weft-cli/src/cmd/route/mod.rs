//! `weft route`: explains the paths of flows, and steers them.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use weft_report::terminal::Output;

mod agent;
mod announce;
mod explain;
pub(crate) mod metrics;
mod orders;
mod serve;
mod simulate;
mod source;
mod status;
mod steer;
mod tables;

pub(crate) use announce::ControllerOptions;

/// Follow flows through the tables that routers have installed, and move flows off congested links
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  sudo weft route explain '10.1.0.2:49152>10.2.0.2' --lab lab   hop by hop, with hashes and shares
  sudo weft route tables --lab lab > installed.toml             the tables of all routers
  sudo weft route agent --lab lab                               sFlow of a lab's routers
  sudo weft route serve --config route.toml                     the controller, with a page
  weft route announce job-7 ports.csv --token-file token        ports for a job, on the measured load
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
    /// Explain the path of a flow, and the choice at every router
    Explain(explain::Explain),
    /// Read the tables that routers have installed, and print them as a file for `--installed`
    Tables(tables::Tables),
    /// Move a destination to other ports of a router, or undo such a move
    Move(steer::Move),
    /// Sample the packets of Linux routers and send sFlow
    Agent(agent::Agent),
    /// Watch a fabric and steer it until interrupted
    Serve(serve::Serve),
    /// Have a running controller plan a job's ports, on the installed tables and the measured load
    Announce(announce::Announce),
    /// Report to a running controller that a job has ended
    Withdraw(announce::Withdraw),
    /// Show which controller steers, the jobs, the moves and the alarms
    Status(status::Status),
    /// Simulate a whole cluster at the level of flows, with the controller and without
    Simulate(simulate::Simulate),
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    match arguments.verb {
        Verb::Explain(arguments) => explain::run(&arguments, output),
        Verb::Tables(arguments) => tables::run(&arguments, output),
        Verb::Move(arguments) => steer::run(&arguments, output),
        Verb::Agent(arguments) => agent::run(&arguments, output),
        Verb::Serve(arguments) => serve::run(arguments, output),
        Verb::Announce(arguments) => announce::run(&arguments, output),
        Verb::Withdraw(arguments) => announce::withdraw(&arguments, output),
        Verb::Status(arguments) => status::run(&arguments, output),
        Verb::Simulate(arguments) => simulate::run(&arguments, output),
    }
}
