//! `weft route move`: installs one move by hand.

use std::net::IpAddr;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use serde_json::json;
use weft_steer::{Change, Lease, Plan, RouterEntry};

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
        carry_out(router, &plan, &change, &Lease::new(holder, LEASE))?;
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

/// Carries out a plan under a lease, waits until the router's kernel shows the change, and releases the lease, also if
/// a command has failed.
fn carry_out(router: &RouterEntry, plan: &Plan, change: &Change, lease: &Lease) -> Result<()> {
    let done = router.carry_out(plan, lease);
    let seen = done.is_ok().then(|| router.await_change(change, APPLY_TIMEOUT));
    let released = lease.release(router);
    done?;
    released?;
    if let Some(Err(error)) = seen {
        bail!("it was told, and its kernel does not show it: {error}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use weft_steer::Method;

    use super::*;

    /// A router whose scripts run on this machine. Its lease is in a folder of the test.
    fn router(folder: &str) -> RouterEntry {
        let run = format!("sed 's,/run/weft-route,{folder},g' | sh -s");
        let reach = ["sh", "-c", &run].map(String::from).to_vec();
        let (agent, apply) = ([127, 0, 0, 1].into(), Method::Kernel);
        RouterEntry { name: "l0".into(), reach, agent, sources: vec![], apply, ports: vec![] }
    }

    #[test]
    fn a_move_whose_commands_fail_leaves_no_lease() {
        let folder = std::env::temp_dir().join(format!("weft-move-{}", std::process::id()));
        let lease_file = folder.join("router.lease");
        let router = router(folder.to_str().unwrap());
        let change = Change::back("10.2.0.2".parse::<IpAddr>().unwrap());
        let commands = vec![format!("test -s {} || exit 5", lease_file.display()), "exit 7".into()];
        let plan = Plan::of_commands("l0", commands);
        let error = carry_out(&router, &plan, &change, &Lease::new("by-hand", LEASE)).unwrap_err();
        assert!(error.to_string().contains("status: 7"), "{error}");
        assert!(!lease_file.exists(), "{}", fs::read_to_string(&lease_file).unwrap());
        // The lease of a controller stays.
        let other = Lease::new("controller", LEASE);
        other.renew(&router).unwrap();
        let error = carry_out(&router, &plan, &change, &Lease::new("by-hand", LEASE)).unwrap_err();
        assert!(error.to_string().contains("controller"), "{error}");
        assert!(fs::read_to_string(&lease_file).unwrap().starts_with("controller "));
        fs::remove_dir_all(folder).unwrap();
    }
}
