//! `weft route move`: one move by hand.

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
  sudo weft route move l0 10.2.0.2 --by s1 --lab lab --dry-run    say what would be done
  sudo weft route move l0 10.2.0.2 --by s1,s2 --lab lab
  sudo weft route move l0 10.2.0.2 --back --lab lab
  sudo weft route move l0 fd00:2::2 --by s1 --lab lab

All flows to that address at that router move. It is refused while a controller steers the router.")]
pub(super) struct Move {
    /// The router
    router: String,
    /// The destination's address
    destination: IpAddr,
    /// The ports that shall lead there
    #[arg(long, value_name = "PORTS", value_delimiter = ',', required_unless_present = "back")]
    by: Vec<String>,
    /// As it was without any move
    #[arg(long, conflicts_with = "by")]
    back: bool,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    source: Source,
}

/// How long the router may take to have it in its kernel.
const PATIENCE: Duration = Duration::from_secs(10);
/// A move by hand holds the router's lease for as long as it takes.
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
        let seen = router.await_change(&change, PATIENCE);
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
