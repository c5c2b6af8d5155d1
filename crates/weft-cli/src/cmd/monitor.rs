//! `weft monitor`: shows all hosts' programs in one place.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use serde_json::json;
use weft_units::Duration;

use crate::http::{AccessOptions, ClientOptions, Credentials};
use crate::log::LogOptions;
use crate::monitor::{MAX_PINGS, Plan, Sources, run as watch};
use crate::supervision::Supervision;
use weft_report::terminal::Output;

/// Collect the state of running programs, for Prometheus and as a page
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  weft monitor serve                                     this host, at http://127.0.0.1:7480/
  weft monitor agent --listen 10.0.0.1:7475 --token-file token   on each host of several
  weft monitor serve --hosts 10.0.0.1:7475,10.0.0.2:7475 --agents-token-file token

The page shows which programs communicate, how long calls take, each path's round trip and losses, the largest \
senders, and events; it sends requests to this process only. Prometheus finds OpenMetrics at /metrics of either."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Watch this host's programs, and answer collectors and Prometheus
    #[command(after_help = "\
Examples:
  weft adm token token; weft monitor agent --listen 10.0.0.1:7475 --token-file token
  weft monitor agent --listen 10.0.0.1:7475 --anyone-may-read    without `weft adm --hosts`
  weft monitor agent --listen 10.0.0.1:7475 --tls-certificate me.pem --tls-key me.key --tls-clients ca.pem
  curl -H \"Authorization: Bearer $(cat token)\" http://10.0.0.1:7475/v1/report

Clients that show the token may read and, by `weft adm --hosts`, change parameters of this host's programs; this host's users may \
read without it. With --tls-certificate and --tls-key it speaks HTTPS, and with --tls-clients a client's certificate is \
as good as the token. Without them nothing is encrypted: listen only on a network that you trust.")]
    Agent {
        /// The address to listen at; port 0 is any
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7475")]
        listen: SocketAddr,
        #[command(flatten)]
        access: AccessOptions,
        /// Time between two scans of the programs
        #[arg(long, value_name = "INTERVAL", default_value = "500ms")]
        every: Duration,
        /// The folder in which programs publish their state
        #[arg(long, value_name = "FOLDER")]
        folder: Option<PathBuf>,
        #[command(flatten)]
        log: LogOptions,
    },
    /// Collect from agents, or watch this host, and serve the page
    #[command(after_help = "\
Examples:
  weft monitor serve
  weft monitor serve --hosts 10.0.0.1:7475,10.0.0.2:7475 --agents-token-file token
  weft monitor serve --hosts https://10.0.0.1:7475 --agents-ca ca.pem --agents-certificate me.pem --agents-key me.key
  weft monitor serve --file hosts --every 5s --keep 3600s
  ssh -L 7480:127.0.0.1:7480 HOST                        its page, from another host

A file has a host and port on each line; text after a # is ignored.")]
    Serve {
        /// The address to listen at; port 0 is any
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7480")]
        listen: SocketAddr,
        /// Agents to ask [default: none; this host is watched]
        #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
        hosts: Vec<String>,
        /// A file that names agents to ask
        #[arg(long, value_name = "FILE", conflicts_with = "hosts")]
        file: Option<PathBuf>,
        #[command(flatten)]
        agents: AgentsOptions,
        #[command(flatten)]
        access: AccessOptions,
        /// Time between two requests to each agent
        #[arg(long, value_name = "INTERVAL", default_value = "1s")]
        every: Duration,
        /// Time that the page's history covers
        #[arg(long, value_name = "SPAN", default_value = "600s")]
        keep: Duration,
        /// The folder in which programs publish their state
        #[arg(long, value_name = "FOLDER", conflicts_with_all = ["hosts", "file"])]
        folder: Option<PathBuf>,
        #[command(flatten)]
        log: LogOptions,
    },
}

/// Options of requests to agents. Their names begin with `agents`, because [`AccessOptions`] has options of the same
/// kind for the monitor's own clients.
#[derive(Debug, clap::Args)]
struct AgentsOptions {
    /// A file with the token that the agents were given
    #[arg(long, value_name = "FILE")]
    agents_token_file: Option<PathBuf>,
    /// Speak HTTPS with agents whose certificate was issued by these authorities, a PEM file
    #[arg(long, value_name = "FILE")]
    agents_ca: Option<PathBuf>,
    /// The certificate to show to agents that were started with --tls-clients, a PEM file
    #[arg(long, value_name = "FILE", requires = "agents_key", requires = "agents_ca")]
    agents_certificate: Option<PathBuf>,
    /// The certificate's private key, a PEM file of mode 0600
    #[arg(long, value_name = "FILE", requires = "agents_certificate")]
    agents_key: Option<PathBuf>,
}

impl From<AgentsOptions> for ClientOptions {
    fn from(options: AgentsOptions) -> Self {
        Self {
            token_file: options.agents_token_file,
            ca: options.agents_ca,
            certificate: options.agents_certificate,
            key: options.agents_key,
        }
    }
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    let (plan, log) = plan(arguments.verb)?;
    let supervision = Supervision::start()?;
    let service = if plan.keep.is_some() { "weft-monitor" } else { "weft-monitor-agent" };
    let telemetry = log.start(service)?;
    let scheme = plan.access.scheme();
    let what = if plan.keep.is_some() { "page at" } else { "answering at" };
    watch(plan, supervision, telemetry, |at| {
        let status = format!("{what} {scheme}://{at}");
        output.value(&json!({ "listening": at.to_string() }), || status.clone())?;
        Ok(status)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the task of the process, and the options of its log.
fn plan(verb: Verb) -> Result<(Plan, LogOptions)> {
    Ok(match verb {
        Verb::Agent { listen, access, every, folder, log } => {
            let plan = Plan {
                listen,
                sources: Sources::Here(folder),
                every: interval(every)?,
                keep: None,
                access: access.at(listen, None)?,
                credentials: Credentials::default(),
            };
            (plan, log)
        }
        Verb::Serve { listen, hosts, file, agents, access, every, keep, folder, log } => {
            let hosts = match file {
                Some(file) => read_hosts(&file)?,
                None => hosts,
            };
            let sources =
                if hosts.is_empty() { Sources::Here(folder) } else { Sources::Agents(hosts) };
            let credentials = ClientOptions::from(agents).read()?;
            let (every, keep) = (interval(every)?, Some(to_std(keep)));
            let access = access.at(listen, None)?.with_max_body(MAX_PINGS);
            (Plan { listen, sources, every, keep, access, credentials }, log)
        }
    })
}

const fn to_std(span: Duration) -> std::time::Duration {
    std::time::Duration::from_nanos(span.as_nanos())
}

fn interval(every: Duration) -> Result<std::time::Duration> {
    let least = Duration::from_millis(50);
    if every < least {
        bail!("--every {every} is too often: {least} at least");
    }
    Ok(to_std(every))
}

/// Reads hosts from a file, one on each line.
fn read_hosts(file: &Path) -> Result<Vec<String>> {
    let read = std::fs::read_to_string(file);
    let text = read.with_context(|| format!("cannot read the hosts in {}", file.display()))?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let hosts: Vec<String> = lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
    if hosts.is_empty() {
        bail!("{} names no host: one HOST:PORT on each line", file.display());
    }
    Ok(hosts)
}
