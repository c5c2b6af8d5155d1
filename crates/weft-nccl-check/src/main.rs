//! `weft-nccl-check PLUGIN`: checks an NCCL net plugin, or with `--tuner` a tuner plugin, without NCCL and without a GPU. It loads the library as NCCL does and makes
//! NCCL's calls in NCCL's order, through the structure of each version of the interface that the plugin exports. Two ranks, as
//! threads or as processes, exchange handles and messages. It prints a line for each check.

mod checks;
mod clock;
mod exchange;
mod logger;
mod memory;
mod net;
mod processes;
mod rank;
mod run;
mod transfer;
mod tuner;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use weft_nccl_abi::VERSIONS;
use weft_units::ByteCount;

use checks::Check;
use net::Library;

/// Check an NCCL net plugin: NCCL's calls in NCCL's order, every version of the interface that it exports, without a GPU.
#[derive(Clone, Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Args {
    /// The plugin's library, such as libnccl-net-weft.so.
    plugin: PathBuf,
    /// A version of the interface, 6 to 12, instead of all that the plugin exports.
    #[arg(long = "interface", value_name = "VERSION")]
    interfaces: Vec<u8>,
    /// The ranks: threads of one process, or processes.
    #[arg(long, value_enum, default_value_t = Ranks::Threads)]
    ranks: Ranks,
    /// A command that starts each rank's process, such as "ip netns exec h0"; the second is rank 1's.
    #[arg(long = "on", value_name = "COMMAND")]
    hosts: Vec<String>,
    /// Checks to run, by name, instead of the default ones.
    #[arg(long = "only", value_name = "CHECK")]
    only: Vec<String>,
    /// List the checks.
    #[arg(long)]
    list: bool,
    /// The largest message.
    #[arg(long, default_value = "4MiB", value_name = "SIZE")]
    max_size: ByteCount,
    /// Seconds without progress after which a check fails.
    #[arg(long, default_value_t = 30)]
    timeout: u64,
    /// Seconds that the checks `steady` and `speed` take.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// The device, by its number in the plugin.
    #[arg(long, default_value_t = 0)]
    device: i32,
    /// Check a tuner plugin in the place of a net plugin, for a communicator of this size; prints what NCCL would choose for
    /// all-reduces by size.
    #[arg(long, value_name = "RANKS/SERVERS", conflicts_with_all = ["interfaces", "only", "hosts"])]
    tuner: Option<tuner::Communicator>,
    /// Show the plugin's log.
    #[arg(long)]
    log: bool,
    /// The number of this process's rank: the check starts such processes itself.
    #[arg(long, hide = true)]
    rank: Option<usize>,
}

/// The kind of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Ranks {
    Threads,
    Processes,
}

impl Args {
    /// Returns the checks to run with this kind of ranks.
    fn checks(&self) -> Result<Vec<&'static Check>> {
        let known: Vec<&str> = checks::ALL.iter().map(|check| check.name).collect();
        if let Some(unknown) = self.only.iter().find(|name| !known.contains(&name.as_str())) {
            bail!("no check {unknown:?}; there are: {}", known.join(", "));
        }
        let has_processes = self.ranks == Ranks::Processes || self.rank.is_some();
        let wanted = |check: &&Check| match self.only.is_empty() {
            true => check.by_default && (has_processes || !check.needs_processes),
            false => self.only.iter().any(|name| name == check.name),
        };
        Ok(checks::ALL.iter().filter(wanted).collect())
    }

    /// Returns the versions to check: those that the plugin exports, oldest first.
    fn versions(&self) -> Result<Vec<u8>> {
        let library = Library::open(&self.plugin)?;
        let exported: Vec<u8> =
            VERSIONS.into_iter().rev().filter(|&version| library.exports(version)).collect();
        if exported.is_empty() {
            bail!(
                "{} exports none of ncclNetPlugin_v6 to ncclNetPlugin_v12",
                self.plugin.display()
            );
        }
        if let Some(missing) = self.interfaces.iter().find(|version| !exported.contains(version)) {
            bail!("{} has no ncclNetPlugin_v{missing}; it has {exported:?}", self.plugin.display());
        }
        Ok(exported
            .into_iter()
            .filter(|version| self.interfaces.is_empty() || self.interfaces.contains(version))
            .collect())
    }
}

fn run(args: &Args) -> Result<bool> {
    if args.list {
        for check in checks::ALL {
            println!("{:<12} {}", check.name, check.about);
        }
        return Ok(true);
    }
    logger::set_shown(args.log);
    if let Some(communicator) = args.tuner {
        return tuner::run(args, communicator);
    }
    if let Some(rank) = args.rank {
        return processes::run_rank(args, rank);
    }
    let mut all_passed = true;
    for version in args.versions()? {
        all_passed &= match args.ranks {
            Ranks::Threads => run::run_threads(args, version)?,
            Ranks::Processes => processes::run_parent(args, version)?,
        };
    }
    Ok(all_passed)
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
