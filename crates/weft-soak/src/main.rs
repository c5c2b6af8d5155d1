//! `make soak`: three hosts with the daemons that ship, tenants, RDMA, collectives and controllers, under a seeded schedule of
//! faults. Nothing may be lost, nothing may leak, and every alarm has to be explained (`docs/soak.md`).
//!
//! | subject | file |
//! | --- | --- |
//! | fabric, etcd, folders | `stage.rs`, `shared.rs`, `memory.rs` |
//! | the daemons, and who starts them again | `daemons.rs`, `supervisor.rs` |
//! | what runs on them | `workload/`, `worker.rs`, `account.rs` |
//! | the faults, and what each may cost | `schedule.rs`, `fault.rs`, `costs.rs` |
//! | the judgement | `health.rs`, `leaks.rs`, `journal.rs` |
//! | from start to end, output | `soak.rs`, `report.rs` |
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "a soak runs in real time on a real machine")]

mod account;
mod clock;
mod costs;
mod daemons;
mod fault;
mod health;
mod journal;
mod leaks;
mod memory;
mod report;
mod schedule;
mod shared;
mod soak;
mod stage;
mod supervisor;
mod worker;
mod workload;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Error, Result, anyhow, ensure};
use clap::Parser;

use report::{Printer, Settings};

/// Number of hosts, each behind a leaf of its own.
const HOSTS: usize = 3;
/// Number of spines: of paths between two hosts.
const SPINES: usize = 4;

#[derive(Debug, Parser)]
#[command(
    name = "weft-soak",
    version,
    about = "Run Weft on three hosts under a schedule of faults, and check everything"
)]
struct Arguments {
    /// The duration, in minutes, after everything is healthy for the first time
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=10_080))]
    minutes: u64,
    /// The seed of the schedule
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The command `weft`, with the libraries of `weft run` [default: beside this program]
    #[arg(long, value_name = "FILE")]
    weft: Option<PathBuf>,
    /// The folder of the daemons' logs
    #[arg(long, value_name = "FOLDER", default_value = "out/soak")]
    logs: PathBuf,
    /// Multiply every time limit by this, on a machine with other load
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=20))]
    slack: u32,
    /// Print the schedule only
    #[arg(long)]
    plan: bool,
    /// Print a report as JSON, and nothing else
    #[arg(long)]
    json: bool,
    /// `/dev/shm` is this run's own
    #[arg(long, hide = true)]
    own_memory: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// A workload's program, which the soak starts itself
    #[command(subcommand, hide = true)]
    Workload(worker::Workload),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Command::Workload(workload)) = arguments.command {
        return match worker::run(workload) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    match run(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a soak. Returns `true` if it has passed.
fn run(arguments: Arguments) -> Result<bool> {
    let weft = match arguments.weft {
        Some(weft) => weft,
        None => shared::beside("weft")?,
    };
    let duration = Duration::from_secs(60 * arguments.minutes);
    let settings = Settings {
        seed: arguments.seed,
        duration,
        slack: arguments.slack,
        weft,
        logs: arguments.logs,
    };
    let printer = Printer { json: arguments.json };
    if arguments.plan {
        printer.schedule(&settings, &schedule::plan(settings.seed, duration));
        return Ok(true);
    }
    ensure!(
        settings.weft.is_file(),
        "no {}: make soak builds it, or name it by --weft",
        settings.weft.display()
    );
    if !arguments.own_memory {
        return Err(restart_with_own_memory());
    }
    let report = soak::run(&settings, printer)?;
    printer.report(&report);
    Ok(report.failures.is_empty())
}

/// Starts this program again with a `/dev/shm` of its own, in which files are counted: other programs of the machine use the
/// machine's. All other mounts stay shared. Returns only if that fails.
fn restart_with_own_memory() -> Error {
    const MOUNT: &str =
        "mount --make-private /dev/shm && mount -t tmpfs weft-soak /dev/shm && exec \"$@\"";
    let Ok(own) = std::env::current_exe() else { return anyhow!("this program has no path") };
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "--propagation", "unchanged", "sh", "-c", MOUNT, "sh"]);
    command.arg(own).args(std::env::args_os().skip(1)).arg("--own-memory");
    Error::new(command.exec()).context("cannot start unshare (util-linux)")
}
