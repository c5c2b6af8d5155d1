//! `weft ping`: every host pings every other over messages, and one shows the matrix (X-RDMA's XR-Ping,
//! section VI.B).

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use clap::Subcommand;
use serde_json::json;
use weft_guard::Token;
use weft_units::{ByteCount, Duration};

use crate::cmd::perf::resolve;
use crate::http::{ClientOptions, Credentials};
use crate::interrupt::until_interrupted;
use crate::messages::{self, DEFAULT_PORT, NodeOptions};
use weft_report::terminal::Output;

mod coordinator;
mod hosts;
mod matrix;
mod paths;

use coordinator::{Coordinator, Round};
pub(super) use hosts::File as HostsFile;
use hosts::Hosts;
use matrix::Matrix;

/// Every host pings every other with messages: reachability, round-trip times and losses of all pairs
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  weft ping serve --token-file token                 on every host (`weft perf server --messages` does too)
  weft ping 10.0.0.1 10.0.0.2 10.0.1.1 --token-file token    all of them ping each other, once
  weft ping --file hosts.toml --token-file token     hosts by ToR
  weft ping --file hosts.toml --tor leaf0 --count 0 --token-file token    those of one ToR, until interrupted
  weft ping 10.0.0.1 10.0.0.2 --token-file token --json
  weft ping paths --from 10.1.0.2 --file hosts.toml --token-file token    loss of each path, for `weft route serve`
  weft ping --file hosts.toml --token-file token --monitor 127.0.0.1:7480 --monitor-token-file page-token    on its page too

hosts.toml:
  [tor]
  leaf0 = [\"10.0.0.1\", \"10.0.0.2\"]
  leaf1 = [\"10.0.1.1\", \"storage-7:4793\"]

A row is the host that pings, a column the host that answers; a cell has the median and the 99th percentile of round trips, and the
share of pings that were lost. RDMA retransmits lost packets: a bad path shows as time, a dead one as loss. \
Outliers are coloured, and marked with !. The exit code is 1 if a host could not be reached."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Hosts: names or addresses, with the port unless it is 4792
    hosts: Vec<String>,
    /// Hosts by ToR, as TOML
    #[arg(long, value_name = "FILE", conflicts_with = "hosts")]
    file: Option<PathBuf>,
    /// Only the hosts of this ToR of the file, or of several
    #[arg(long, value_name = "NAME", requires = "file")]
    tor: Vec<String>,
    /// Pings from each host to each other; 0 goes on until interrupted
    #[arg(long, default_value_t = 20)]
    count: u32,
    /// Bytes of a ping and of its answer
    #[arg(long, default_value = "64")]
    size: ByteCount,
    /// Time after which a ping is lost
    #[arg(long, default_value = "1s")]
    timeout: Duration,
    /// A file with the token that the hosts were given
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Send the matrix to this monitor (`weft monitor serve`), which shows it
    #[arg(long, value_name = "HOST:PORT")]
    monitor: Option<String>,
    #[command(flatten)]
    monitor_client: MonitorOptions,
    #[command(flatten)]
    node: NodeOptions,
}

/// Options of the request to the monitor. Their names begin with `monitor`, because the hosts have a token of their own.
#[derive(Debug, clap::Args)]
struct MonitorOptions {
    /// A file with the token that the monitor was given
    #[arg(long, value_name = "FILE", requires = "monitor")]
    monitor_token_file: Option<PathBuf>,
    /// Speak HTTPS with a monitor whose certificate was issued by these authorities, a PEM file
    #[arg(long, value_name = "FILE", requires = "monitor")]
    monitor_ca: Option<PathBuf>,
}

impl MonitorOptions {
    /// Reads the files.
    fn credentials(&self) -> Result<Credentials> {
        let (token_file, ca) = (self.monitor_token_file.clone(), self.monitor_ca.clone());
        ClientOptions { token_file, ca, ..ClientOptions::default() }.read()
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Answer pings, and ping others when asked, until interrupted
    #[command(after_help = "\
Examples:
  weft adm token token; weft ping serve --token-file token
  weft ping serve --listen 10.0.0.1:4793 --token-file token --device weft

Every host may ping this one. Without a token, other hosts' orders to ping are refused.")]
    Serve(ServeArgs),
    /// Probe paths to other hosts every few milliseconds for a route controller, until interrupted
    Paths(Box<paths::Paths>),
}

#[derive(Debug, clap::Args)]
struct ServeArgs {
    /// Address and port to listen at
    #[arg(long, default_value_t = SocketAddr::from(([0, 0, 0, 0], DEFAULT_PORT)))]
    listen: SocketAddr,
    /// A file with a token (`weft adm token FILE`): clients that show it may have this host ping others
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    node: NodeOptions,
}

/// Pings of each pair between two updates of the matrix.
const ROUND: u32 = 5;

/// The longest ping, bytes.
const MAX_PING: u64 = 1 << 20;

pub(crate) fn run(mut arguments: Args, output: Output) -> Result<ExitCode> {
    match arguments.verb.take() {
        Some(Verb::Serve(serve)) => {
            messages::answer_at(serve.listen, serve.token_file.as_deref(), &serve.node, output)?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(Verb::Paths(arguments)) => return paths::run(*arguments, output),
        None => {}
    }
    if arguments.size.0 > MAX_PING {
        bail!("--size {} is too large, expected up to 1 MiB", arguments.size);
    }
    let hosts = match &arguments.file {
        Some(file) => Hosts::read(file, &arguments.tor)?,
        None => Hosts::of(&arguments.hosts)?,
    };
    let node = arguments.node.open(0)?;
    let stop = until_interrupted()?;
    let size = u32::try_from(arguments.size.0).expect("checked above");
    let token = arguments.token_file.as_deref().map(Token::read).transpose()?;
    let mut coordinator = Coordinator::new(node, &hosts, size, arguments.timeout, token);
    let mut matrix = Matrix::new(hosts);
    measure(&arguments, &mut coordinator, &mut matrix, &stop, output)?;
    output.value(&json!(matrix.report()), || matrix.text())?;
    Ok(if matrix.all_reached() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs all rounds. After each one it sends the matrix to the monitor, if there is one, and draws it on a terminal.
fn measure(
    arguments: &Args,
    coordinator: &mut Coordinator,
    matrix: &mut Matrix,
    stop: &AtomicBool,
    output: Output,
) -> Result<()> {
    let credentials = arguments.monitor_client.credentials()?;
    let live = std::io::stdout().is_terminal() && !output.is_json();
    let mut left = if arguments.count == 0 { u32::MAX } else { arguments.count };
    let mut drawn = 0;
    while left > 0 && !stop.load(Ordering::Relaxed) {
        let count = left.min(ROUND);
        left -= count;
        for Round { from, outcomes } in coordinator.round(count) {
            matrix.take(from, outcomes);
        }
        if let Some(monitor) = &arguments.monitor {
            matrix.report().send(monitor, &credentials)?;
        }
        if live {
            let picture = matrix.text();
            anstream::print!("{}{picture}", up(drawn));
            std::io::stdout().flush()?;
            drawn = picture.lines().count();
        }
    }
    if live {
        anstream::print!("{}", up(drawn));
    }
    Ok(())
}

/// Returns the escape sequence with which the next matrix overwrites the last one.
fn up(lines: usize) -> String {
    if lines == 0 { String::new() } else { format!("\x1b[{lines}A\x1b[J") }
}

/// Returns the address of a host as users write it.
fn address(host: &str) -> Result<SocketAddr> {
    resolve(host, DEFAULT_PORT)
}
