//! `weft perf`: measures the transport on real packets.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use weft_perf::{Client, ClientConfig, Plan, Progress, Report, Server, ServerConfig, TestKind};
use weft_report::Unit;
use weft_udp::WaitMode;
use weft_units::{ByteCount, Duration};

use crate::encryption_options::EncryptionOptions;
use crate::interrupt::until_interrupted;
use crate::messages::{NodeOptions, answer_at};
use crate::transport_options::TransportOptions;
use weft_report::terminal::Output;

mod address;
mod messages;
mod model;
mod report;

pub(crate) use address::resolve;

/// The port of a server by default: next to RoCE's 4791, and assigned to no service.
const DEFAULT_PORT: u16 = 4792;

/// The heading of the options that concern messages alone.
const MESSAGES: &str = "Messages over RDMA (X-RDMA)";

/// Measure throughput, latency and messages a second on real packets
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  weft perf server                                          on one host
  weft perf client 10.2.0.2                                 on another: throughput over 4 paths
  weft perf client 10.2.0.2 --test latency --size 64
  weft perf client 10.2.0.2 --paths 16 --policy dwrr --json
  weft perf server --messages                               messages over RDMA (X-RDMA)
  weft perf client 10.2.0.2 --messages --model rpc-mix

On one machine, with four real paths between two namespaces:
  sudo weft lab up --spines 4
  sudo weft lab exec h1 -- weft perf server &
  sudo weft lab exec h0 -- weft perf client 10.2.0.2"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "a process has one, and it is not moved")]
enum Verb {
    /// Answer clients until interrupted; the client chooses the measurement
    #[command(after_help = "\
Examples:
  weft perf server
  weft perf server --listen 10.2.0.2:5000 --wait poll    lowest latency, a core to itself
  weft perf server --messages                            X-RDMA, on RDMA hardware or without")]
    Server(ServerArgs),
    /// Measure against a server
    #[command(after_help = "\
Examples:
  weft perf client 10.2.0.2                                  bulk, 10 s, 4 paths
  weft perf client 10.2.0.2 --test latency --size 64         ping-pong
  weft perf client 10.2.0.2 --test messages --outstanding 64 requests and responses
  weft perf client 10.2.0.2 --profile single                 one path, for comparison
  weft perf client 10.2.0.2 --encryption required --identity key --peers servers
  weft perf client 10.2.0.2 --set retransmission.rto_min=2ms --json
  weft perf client 10.2.0.2 --messages --model ping-pong --trace-every 1
  weft perf client 10.2.0.2 10.2.0.3 --messages --model incast --connections 32
  weft perf client 10.2.0.2 --messages --model rpc-mix --sizes ali-storage --rate 5000")]
    Client(Box<ClientArgs>),
}

#[derive(Debug, clap::Args)]
struct ServerArgs {
    /// Address and port to receive on; on a host with several addresses, the one that clients use
    #[arg(long, default_value_t = SocketAddr::from(([0, 0, 0, 0], DEFAULT_PORT)))]
    listen: SocketAddr,
    /// The way to wait for packets: block, poll or hybrid
    #[arg(long, default_value = "hybrid")]
    wait: WaitMode,
    #[command(flatten)]
    transport: TransportOptions,
    #[command(flatten)]
    encryption: EncryptionOptions,
    /// Answer messages over RDMA (X-RDMA) instead; also for `weft ping`
    #[arg(long, help_heading = MESSAGES)]
    messages: bool,
    /// A file with a token: clients that show it may have this host ping others, by `weft ping`
    #[arg(long, value_name = "FILE", requires = "messages", help_heading = MESSAGES)]
    token_file: Option<PathBuf>,
    #[command(flatten, next_help_heading = MESSAGES)]
    node: NodeOptions,
}

#[derive(Debug, clap::Args)]
struct ClientArgs {
    /// The server: a name or address, with the port unless it is 4792; several for messages
    #[arg(value_name = "SERVER", required = true)]
    servers: Vec<String>,
    /// The measurement: throughput, latency or messages
    #[arg(long, default_value = "throughput")]
    test: TestKind,
    /// Size of a message [default: 1MiB for throughput, 64 otherwise]
    #[arg(long)]
    size: Option<ByteCount>,
    /// Messages in flight on each connection [default: 8 for throughput, 16 for messages]
    #[arg(long)]
    outstanding: Option<u32>,
    /// Connections; channels for messages, spread over the servers [default: 1, or 4 for most models]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    connections: Option<u32>,
    /// Time during which new messages are sent
    #[arg(long, default_value = "10s")]
    duration: Duration,
    /// Compare every byte that arrives with the byte sent
    #[arg(long)]
    verify: bool,
    /// The way to wait for packets: block, poll or hybrid
    #[arg(long, default_value = "hybrid")]
    wait: WaitMode,
    /// Address to send from, where the host has several
    #[arg(long)]
    bind: Option<SocketAddr>,
    #[command(flatten)]
    transport: TransportOptions,
    #[command(flatten)]
    encryption: EncryptionOptions,
    #[command(flatten, next_help_heading = MESSAGES)]
    messages: messages::Args,
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    match arguments.verb {
        Verb::Server(arguments) if arguments.messages => {
            arguments.encryption.refuse("--messages")?;
            let token_file = arguments.token_file.as_deref();
            answer_at(arguments.listen, token_file, &arguments.node, output)?;
        }
        Verb::Server(arguments) => serve(&arguments, output)?,
        Verb::Client(arguments) if arguments.messages.messages => {
            arguments.encryption.refuse("--messages")?;
            messages::measure(&arguments, output)?;
        }
        Verb::Client(arguments) => measure(&arguments, output)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(arguments: &ServerArgs, output: Output) -> Result<()> {
    let (encryption, key_log) = arguments.encryption.config()?;
    let config = ServerConfig {
        encryption,
        local: arguments.listen,
        transport: arguments.transport.config()?,
        wait: arguments.wait,
    };
    let mut server = Server::open(&config)?;
    key_log.into_iter().for_each(|log| server.agent().log_keys(log));
    let stop = until_interrupted()?;
    let local = server.local();
    output.value(&json!({ "listening": local }), || {
        format!("listening on {local}; interrupt to stop")
    })?;
    server.run(&stop);
    Ok(())
}

fn measure(arguments: &ClientArgs, output: Output) -> Result<()> {
    let [server] = arguments.servers.as_slice() else {
        bail!("several servers are for --messages; without, name one");
    };
    let server = resolve(server, DEFAULT_PORT)?;
    let bulk = arguments.test == TestKind::Throughput;
    let size = arguments.size.unwrap_or(if bulk { ByteCount(1 << 20) } else { ByteCount(64) });
    let bytes = u32::try_from(size.0)
        .map_err(|_| anyhow!("--size {size} is too large, expected 1 byte to 256 MiB"))?;
    let outstanding = arguments.outstanding.unwrap_or(if bulk { 8 } else { 16 });
    let unspecified = match server {
        SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
        SocketAddr::V6(_) => SocketAddr::from(([0u16; 8], 0)),
    };
    let (encryption, key_log) = arguments.encryption.config()?;
    let config = ClientConfig {
        encryption,
        local: arguments.bind.unwrap_or(unspecified),
        server,
        transport: arguments.transport.config()?,
        plan: Plan::new(arguments.test, bytes, outstanding, arguments.verify)?,
        connections: arguments.connections.unwrap_or(1),
        duration: arguments.duration,
        wait: arguments.wait,
    };
    let mut client = Client::open(config)?;
    key_log.into_iter().for_each(|log| client.agent().log_keys(log));
    let source_ports = client.agent().sockets().outbox.source_ports();
    let source_ports = source_ports.context("cannot ask the sockets for their ports")?;
    let bar = progress_bar();
    let report = client.run(|progress| show(&bar, progress));
    bar.finish_and_clear();
    let report = report?;
    let profile = arguments.transport.profile_name();
    let profiled = Profiled { profile, report: &report };
    output.value(&profiled, || report::text(profile, &report, &source_ports))
}

/// A report, and the profile that its transport started from.
#[derive(serde::Serialize)]
struct Profiled<'a> {
    profile: &'static str,
    #[serde(flatten)]
    report: &'a Report,
}

/// Returns a progress bar on standard error, which is drawn only on a terminal.
fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {msg}").expect("a constant template");
    ProgressBar::new(1000).with_style(style)
}

fn show(bar: &ProgressBar, progress: &Progress) {
    let Progress { seconds, of_seconds, messages, bytes } = *progress;
    if seconds <= 0.0 {
        bar.set_message("connecting");
        return;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of the bar's thousand steps"
    )]
    bar.set_position((1000.0 * (seconds / of_seconds).min(1.0)) as u64);
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let rate = |count: u64| count as f64 / seconds;
    let goodput = Unit::BitsPerSecond.format(8.0 * rate(bytes));
    let messages = Unit::Count.format(rate(messages));
    bar.set_message(format!("{seconds:.1} of {of_seconds:.0} s  {goodput}  {messages} messages/s"));
}
