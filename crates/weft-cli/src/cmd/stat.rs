//! `weft stat`: shows the channels of running programs, from shared memory.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::stat::{Host, View, show};
use weft_report::terminal::Output;

/// Show the channels of running programs: state, window, in flight, retransmissions, paths, memory
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft stat                        every channel of every program of this user; for root, of all users
  weft stat --watch                the same, again every second, until interrupted
  weft stat nodes                  a row for each program: memory, queue pairs, slow calls and polls
  weft stat paths                  round trip and losses of each path, on Weft's own device
  weft stat events                 channels that opened and closed, slow calls, changed parameters
  weft stat channels kv_server     one program's, by name or process number
  weft stat --json | jq '.nodes[].channels[].in_flight'

Programs publish their state in files below XDG_RUNTIME_DIR/weft, or in /dev/shm/weft-UID; WEFT_STAT names another folder \
for them and for this command, and WEFT_STAT=off keeps a program from it. Reading does not slow the programs. Retransmissions, \
paths and round trips are known of Weft's own device; where the device is other hardware they are `-`.")]
pub(crate) struct Args {
    /// The table to show
    #[arg(value_enum, default_value_t = View::Channels)]
    view: View,
    /// Programs to show, by name or process number [default: all]
    program: Vec<String>,
    /// Show it again after each interval [default: 1s]
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "1s")]
    watch: Option<weft_units::Duration>,
    /// The folder in which programs publish their state
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    let Args { view, program, watch, folder } = arguments;
    let Some(every) = watch else {
        let host = read_host(folder.as_deref(), &program)?;
        show(&host, view, output)?;
        return Ok(ExitCode::SUCCESS);
    };
    if every.as_nanos() < 10_000_000 {
        bail!("--watch {every} is too often: 10ms at least");
    }
    loop {
        let host = read_host(folder.as_deref(), &program)?;
        if !output.is_json() {
            // The escape sequences move the cursor home, and clear the screen.
            output.raw("\x1b[H\x1b[2J")?;
        }
        show(&host, view, output)?;
        std::thread::sleep(Duration::from_nanos(every.as_nanos()));
    }
}

fn read_host(folder: Option<&std::path::Path>, programs: &[String]) -> Result<Host> {
    let mut host = Host::read(folder)?;
    if !programs.is_empty() {
        host.nodes.retain(|node| programs.iter().any(|wanted| node.is_called(wanted)));
    }
    Ok(host)
}
