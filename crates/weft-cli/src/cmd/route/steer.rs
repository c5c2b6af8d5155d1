//! `weft route move`: installs one move by hand.

use std::net::IpAddr;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use serde_json::json;
use weft_steer::{Change, Lease};

use super::source::Source;
use weft_report::terminal::Output;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo weft route move l0 10.2.0.2 --by s1 --lab lab --dry-run    print the commands, run none
  sudo weft route move l0 10.2.0.2 --by s1,s2 --lab lab
  sudo weft route move l0 10.2.0.2 --back --lab lab
  sudo weft route move l0 fd00:2::2 --by s1 --lab lab

All flows to that address at that router move. It is refused while a controller steers the router.")]
pub(super) struct Move {
    /// The router
    router: String,
    /// The destination's address
    destination: IpAddr,
    /// The ports that lead there after the move
    #[arg(long, value_name = "PORTS", value_delimiter = ',', required_unless_present = "back")]
    by: Vec<String>,
    /// Undo the move
    #[arg(long, conflicts_with = "by")]
    back: bool,
    /// Print the commands, but run none
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    source: Source,
}

/// The time limit for the router's kernel to show the change.
const APPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// The duration of the router's lease that a move by hand holds until it is done.
const LEASE: Duration = Duration::from_secs(30);

pub(super) fn run(arguments: &Move, output: Output) -> Result<ExitCode> {
    let Move { destination, by, back, .. } = arguments;
    let change = match back {
        true => Change::back(*destination),
        false => Change::by(*destination, by.iter().map(String::as_str)),
    };
    let inventory = arguments.source.inventory()?;
    let router = inventory.router(&arguments.router)?;
    let plan = router.plan(&change)?;
    if !arguments.dry_run {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let holder = format!("by-hand/{}/{}", std::process::id(), since.as_nanos());
        let lease = Lease::new(holder, LEASE);
        router.carry_out(&plan, &lease)?;
        let seen = router.await_change(&change, APPLY_TIMEOUT);
        lease.release(router)?;
        if let Err(error) = seen {
            bail!("it was told, and its kernel does not show it: {error}");
        }
    }
    let done = if arguments.dry_run { "would run" } else { "ran" };
    let value =
        json!({ "router": plan.router, "done": !arguments.dry_run, "commands": plan.commands });
    output.value(&value, || match plan.commands.as_slice() {
        [] => format!("{}: {change}: nothing to do", plan.router),
        commands => format!("{}: {done}:\n  {}", plan.router, commands.join("\n  ")),
    })?;
    Ok(ExitCode::SUCCESS)
}
