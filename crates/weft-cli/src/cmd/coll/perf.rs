//! `weft coll perf`: options of a measurement, and its run at one rank.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use weft_comm::{
    Algorithm, Channels, Collective, CommError, Communicator, ControllerAddress, DataType, Op,
    Options, Token, Traffic,
};
use weft_units::{BitRate, ByteCount, Duration, UnknownName, unknown_name};
use weft_xrdma::NodeError;

use super::measure::{Measurement, Parameters};
use super::{local, ports, report};
use crate::cmd::perf::resolve;
use crate::log::LogOptions;
use crate::messages::NodeOptions;
use weft_report::terminal::Output;

/// The TCP port at which ranks meet by default.
const DEFAULT_PORT: u16 = 47_000;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Collectives to measure, or all
    #[arg(value_name = "COLLECTIVE", default_value = "all_reduce", value_parser = collective)]
    collectives: Vec<Which>,
    /// Start this number of ranks on this machine
    #[arg(long, required_unless_present_any = ["rank"])]
    ranks: Option<usize>,
    /// A lab on whose hosts h0, h1, … the ranks run, with --ranks
    #[arg(long, value_name = "NAME", requires = "ranks")]
    lab: Option<String>,
    /// Ranks on each host of the lab
    #[arg(long, value_name = "RANKS", default_value_t = 1, requires = "lab")]
    ranks_per_host: usize,
    /// Be this rank, from 0
    #[arg(long)]
    rank: Option<usize>,
    /// Ranks of all hosts together, with --rank
    #[arg(long, value_name = "RANKS", requires = "at")]
    of: Option<usize>,
    /// The address, one of rank 0's, at which ranks meet
    #[arg(long, value_name = "HOST:PORT", requires = "rank")]
    at: Option<String>,
    /// The address at which each rank listens, instead of --of and --at
    #[arg(
        long,
        value_name = "HOST:PORT,…",
        value_delimiter = ',',
        requires = "rank",
        conflicts_with = "at"
    )]
    hosts: Vec<String>,
    /// The smallest size
    #[arg(long, default_value = "8B")]
    from: ByteCount,
    /// The largest size
    #[arg(long, default_value = "64MiB")]
    to: ByteCount,
    /// The factor between one size and the next
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..))]
    factor: u64,
    /// Iterations to measure, as long as there is time
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Iterations before the measurement
    #[arg(long, default_value_t = 2)]
    warm_up: u32,
    /// Time for the iterations of a size; at least one is measured
    #[arg(long, default_value = "2s")]
    time: Duration,
    /// The type of the elements
    #[arg(long = "type", default_value = "float", value_parser = data_type)]
    data_type: DataType,
    /// The reduction of the elements
    #[arg(long, default_value = "sum", value_parser = op)]
    op: Op,
    /// The root, for collectives that have one
    #[arg(long, default_value_t = 0)]
    root: usize,
    /// Do not check the results
    #[arg(long)]
    no_check: bool,
    /// Channels that carry messages: auto (memory inside a server, RDMA between servers), net, shm or hybrid
    #[arg(long, default_value = "auto")]
    channels: Channels,
    /// The name of this rank's server: ranks of other names share no memory with it [default: servers are found]
    #[arg(long, value_name = "NAME", requires = "rank")]
    server: Option<String>,
    /// Channels over RDMA between two ranks
    #[arg(long, default_value_t = 2)]
    lanes: usize,
    /// The longest piece that is sent as one message
    #[arg(long, default_value = "65472B")]
    piece: ByteCount,
    /// The order of ranks in rings (`weft plan ring`)
    #[arg(long, value_name = "RANK,…", value_delimiter = ',')]
    order: Option<Vec<usize>>,
    /// The number of each rank's block of the fabric, by rank, for trees that cross blocks as rarely as they can (`weft plan
    /// ring`)
    #[arg(long, value_name = "BLOCK,…", value_delimiter = ',')]
    blocks: Option<Vec<u32>>,
    /// The algorithm of all-reduces above 32 KiB: ring, tree (two trees), hierarchical (inside servers, then between them;
    /// also for all-to-alls of short chunks), or hierarchical:RANKS with RANKS in each server
    #[arg(long, default_value_t = Algorithm::default())]
    algorithm: Algorithm,
    /// Send from the source ports of this table (`weft plan ports --to-port 20480 --csv`); needs Weft's device
    #[arg(long, value_name = "TABLE")]
    ports: Option<PathBuf>,
    /// A route controller (`weft route serve`) that plans the order and the source ports, and changes the ports while the
    /// ranks run; without require: the ranks run on other ports if it does not answer. Needs Weft's device
    #[arg(long, value_name = "[require:]HOST:PORT", conflicts_with = "ports")]
    controller: Option<ControllerAddress>,
    /// A file with the controller's token [default: WEFT_CONTROLLER_TOKEN, or the file that WEFT_CONTROLLER_TOKEN_FILE names]
    #[arg(long, value_name = "FILE", requires = "controller")]
    controller_token_file: Option<PathBuf>,
    /// Pairs of ranks between which the controller plans ports: ring or all
    #[arg(long, default_value = "ring", requires = "controller")]
    plan_traffic: Traffic,
    /// Ports that the controller plans for each pair
    #[arg(long, default_value_t = 4, requires = "controller")]
    plan_ports: usize,
    /// The rate limit of shared memory between two ranks, to model the link that it stands for
    #[arg(long)]
    shm_rate: Option<BitRate>,
    /// A file with the job's token, for ranks on several hosts (`weft adm token FILE`) [default: WEFT_JOB_TOKEN, or the
    /// file that WEFT_JOB_TOKEN_FILE names]
    #[arg(long, value_name = "FILE", requires = "rank")]
    token_file: Option<PathBuf>,
    /// Time limit for a process that connects to rank 0 to send its rank
    #[arg(long, default_value = "2s")]
    hello_timeout: Duration,
    /// Time limit for ranks to join, and for a call that makes no progress
    #[arg(long, default_value = "60s")]
    timeout: Duration,
    #[command(flatten)]
    node: NodeOptions,
}

/// One collective, or all of them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Which {
    One(Collective),
    All,
}

fn collective(text: &str) -> Result<Which, UnknownName> {
    if text == "all" { Ok(Which::All) } else { Ok(Which::One(text.parse()?)) }
}

fn data_type(text: &str) -> Result<DataType, String> {
    let found = DataType::ALL.into_iter().find(|known| known.name() == text);
    found.ok_or_else(|| unknown_name("type", text, &DataType::ALL.map(DataType::name)))
}

fn op(text: &str) -> Result<Op, String> {
    let found = Op::ALL.into_iter().find(|known| known.name() == text);
    found.ok_or_else(|| unknown_name("reduction", text, &Op::ALL.map(Op::name)))
}

pub(super) fn run(arguments: &Args, output: Output) -> Result<ExitCode> {
    if arguments.from > arguments.to {
        bail!("--from {} is more than --to {}", arguments.from, arguments.to);
    }
    if let Some(table) = &arguments.ports {
        ports::take(table)?;
    }
    match (arguments.rank, arguments.ranks) {
        (None, Some(0)) => bail!("--ranks 0: a group has at least one"),
        (None, _) if arguments.ranks_per_host == 0 => bail!("--ranks-per-host 0: at least one"),
        (None, Some(ranks)) => {
            local::run(ranks, arguments.lab.as_deref(), arguments.ranks_per_host)
        }
        (Some(rank), _) => run_rank(rank, arguments, output),
        (None, None) => bail!("which ranks? --ranks for all here, --rank for one"),
    }
}

/// Runs this process as one rank.
fn run_rank(rank: usize, arguments: &Args, output: Output) -> Result<ExitCode> {
    LogOptions::default().start_alone()?;
    let group = arguments.node.begin(|node| join(rank, arguments, node))?;
    if arguments.ports.is_some() {
        ports::check_device()?;
    }
    let (ranks, servers) = (group.ranks(), group.servers().to_vec());
    if arguments.root >= ranks {
        bail!("--root {}: the group has ranks 0 to {}", arguments.root, ranks - 1);
    }
    let mut measurement = Measurement::new(group, arguments.parameters());
    let mut report = report::Report {
        ranks,
        channels: arguments.channels.name(),
        servers,
        lanes: arguments.lanes,
        algorithm: arguments.algorithm.to_string(),
        rows: Vec::new(),
        average_busbw: 0.0,
        wrong: 0,
    };
    let prints = rank == 0 && !output.is_json();
    let print = |text: &str| if prints { output.raw(text) } else { Ok(()) };
    print(&report.head())?;
    for collective in arguments.collectives() {
        print(&report::heading(collective.name(), arguments.channels == Channels::Hybrid))?;
        for bytes in arguments.sizes(collective) {
            let row = measurement.row(collective, bytes)?;
            print(&row.text())?;
            report.rows.push(row);
        }
    }
    measurement.leave();
    #[expect(clippy::cast_precision_loss, reason = "a number of rows")]
    let rows = report.rows.len().max(1) as f64;
    report.average_busbw = report.rows.iter().map(|row| row.busbw).sum::<f64>() / rows;
    report.wrong = report.rows.iter().filter_map(|row| row.wrong).sum();
    print(&report.tail())?;
    if rank == 0 && output.is_json() {
        output.value(&report, String::new)?;
    }
    if report.wrong > 0 {
        bail!("{} elements are wrong", report.wrong);
    }
    Ok(ExitCode::SUCCESS)
}

/// Joins the group. Errors of the device keep their type, because the command may restart on Weft's own libraries.
fn join(
    rank: usize,
    arguments: &Args,
    mut node: weft_xrdma::Options,
) -> Result<Communicator<Vec<u8>>> {
    let defaults = Options::default();
    node.config.close_timeout = defaults.node.config.close_timeout;
    let options = Options {
        node,
        channels: arguments.channels,
        server: arguments.server.clone(),
        lanes: arguments.lanes,
        order: arguments.order.clone(),
        blocks: arguments.blocks.clone(),
        algorithm: arguments.algorithm,
        piece: arguments.piece,
        shm_rate: arguments.shm_rate.map(|rate| rate.as_bps() / 8),
        join_timeout: arguments.timeout,
        token: arguments.token_file.as_deref().map(Token::read).transpose()?,
        hello_timeout: arguments.hello_timeout,
        controller: arguments.controller.clone(),
        controller_token: arguments
            .controller_token_file
            .as_deref()
            .map(Token::read)
            .transpose()?,
        plan_traffic: arguments.plan_traffic,
        plan_ports: arguments.plan_ports,
    };
    let joined = match (&arguments.at, arguments.of) {
        (Some(at), Some(of)) => Communicator::join(resolve(at, DEFAULT_PORT)?, rank, of, options),
        (Some(_), None) => bail!("--of says how many ranks there are"),
        (None, _) if arguments.hosts.is_empty() => bail!("where do ranks meet? --at or --hosts"),
        (None, _) => {
            let hosts = arguments.hosts.iter().map(|host| resolve(host, DEFAULT_PORT));
            let hosts: Vec<SocketAddr> = hosts.collect::<Result<_>>()?;
            Communicator::join_at(&hosts, rank, options)
        }
    };
    joined.map_err(|error| match error {
        CommError::Node(error @ NodeError::Verbs(_)) => error.into(),
        error => anyhow!("rank {rank}: {error}"),
    })
}

impl Args {
    fn collectives(&self) -> Vec<Collective> {
        let each = |which: &Which| match which {
            Which::One(collective) => vec![*collective],
            Which::All => Collective::ALL.to_vec(),
        };
        self.collectives.iter().flat_map(each).collect()
    }

    fn sizes(&self, collective: Collective) -> Vec<usize> {
        if collective == Collective::Barrier {
            return vec![0];
        }
        let mut sizes = Vec::new();
        let mut size = self.from.0.max(1);
        while size <= self.to.0 {
            sizes.push(usize::try_from(size).unwrap_or(usize::MAX));
            size = size.saturating_mul(self.factor);
        }
        sizes
    }

    fn parameters(&self) -> Parameters {
        Parameters {
            data_type: self.data_type,
            op: self.op,
            root: self.root,
            warm_up: self.warm_up,
            max_iterations: self.iterations,
            time: self.time,
            checks: !self.no_check,
            timeout: self.timeout,
            shares: self.channels == Channels::Hybrid,
        }
    }
}
