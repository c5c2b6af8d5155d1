//! `weft demo`: the same two hosts and four paths for each contender, first while one path
//! loses 1 % of its packets, then while another fails and is repaired two seconds later.
//!
//! A contender that uses one path gets the impaired one: the lossy path in the first act, the failing
//! one in the second. A fabric's hash of four paths does the same to one flow in four.
//!
//! ```
//! use clap::Parser;
//!
//! #[derive(Parser)]
//! struct Command {
//!     #[command(flatten)]
//!     demo: weft_demo::Args,
//! }
//!
//! let command = Command::try_parse_from(["demo", "--loopback", "--html", "paths.html"])?;
//! let shown = format!("{:?}", command.demo);
//! assert!(shown.contains("loopback: true") && shown.contains("paths.html"), "{shown}");
//! # Ok::<(), clap::Error>(())
//! ```
//!
//! `weft_demo::run` then runs both acts, which takes half a minute, prints the table and writes the page.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "acts follow one another in real time")]

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use weft_perf::{LatencyMicros, Plan, TestKind};
use weft_transport::TransportConfig;
use weft_udp::{AgentConfig, BaseProfile, Clock};

mod command;
mod flow;
mod goodput;
mod loopback;
mod namespaces;
mod present;
mod stage;
mod tcp;

pub use command::{Args, run};
use flow::Running;
use goodput::Goodput;
use stage::{Condition, Route, Stage};

/// Number of disjoint paths of the fabric.
pub(crate) const PATHS: usize = 4;
/// Number of source ports of a multipath connection: enough for the hash to reach every path.
const ENTROPIES: u16 = 8;
const LOSSY_PATH: usize = 1;
const DYING_PATH: usize = 2;

/// Duration without faults.
const HEALTHY: Duration = Duration::from_millis(1000);
/// Duration with loss on a path.
const LOSSY: Duration = Duration::from_millis(2500);
/// Duration from a path's failure to its repair.
const DEAD: Duration = Duration::from_millis(2000);
/// Duration after the repair.
const REPAIRED: Duration = Duration::from_millis(1500);

/// Time at the beginning of each part that averages exclude, seconds.
const WARM_UP: f64 = 0.25;

const BULK_MESSAGE: u32 = 1 << 20;
const BULK_OUTSTANDING: u32 = 8;
const REQUEST_BYTES: u32 = 64;

/// A transport that carries the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Contender {
    KernelTcp,
    SinglePath,
    Weft,
}

impl Contender {
    const fn name(self) -> &'static str {
        match self {
            Self::KernelTcp => "kernel TCP",
            Self::SinglePath => "Weft, one path",
            Self::Weft => "Weft, four paths",
        }
    }

    const fn route(self, unlucky: usize) -> Route {
        match self {
            Self::KernelTcp | Self::SinglePath => Route::Only(unlucky),
            Self::Weft => Route::All,
        }
    }

    fn transport(self) -> TransportConfig {
        let config = match self {
            Self::KernelTcp | Self::SinglePath => BaseProfile::Single.config(1),
            Self::Weft => AgentConfig::ethernet(ENTROPIES),
        };
        // The connection waits for a repair, as TCP does, and does not time out before.
        TransportConfig { peer_timeout: weft_units::Duration::from_secs(20), ..config }
    }
}

/// The results of one contender.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) contender: Contender,
    /// The cipher of its packets; `None` without encryption.
    pub(crate) cipher: Option<String>,
    /// Goodput of the bulk transfer while every path is healthy, bits per second.
    pub(crate) healthy_bps: f64,
    /// Goodput of the bulk transfer while a path loses packets, bits per second.
    pub(crate) lossy_bps: f64,
    /// Round trips of requests while a path loses packets.
    pub(crate) lossy_latency_us: LatencyMicros,
    /// Time from a path's failure until the bulk transfer recovered, seconds; `None` if it did not.
    pub(crate) back_after_seconds: Option<f64>,
    /// Goodput of the bulk transfer in the half second before the path's failure, bits per second: the reference for
    /// recovery.
    pub(crate) before_death_bps: f64,
    /// Goodput of the bulk transfer at the end, a second and more after the path's repair, bits per second.
    pub(crate) after_repair_bps: f64,
    /// Longest round trip of a request in the act in which a path fails, seconds.
    pub(crate) longest_wait_seconds: f64,
    loss: Act,
    death: Act,
}

/// The bulk transfer of one act, and the times of faults and repairs in seconds from its start.
#[derive(Debug, Serialize)]
struct Act {
    goodput: Goodput,
    events: Vec<(f64, &'static str)>,
}

/// The results of the demonstration.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    /// The stage that it ran on.
    pub(crate) stage: String,
    pub(crate) rows: Vec<Row>,
}

/// Runs every contender that the stage can carry. Calls `observe` with each step's name.
///
/// # Errors
/// Returns an error if a path cannot be changed, or if a flow cannot be opened or ends in an error.
pub(crate) fn perform(stage: &mut dyn Stage, mut observe: impl FnMut(&str)) -> Result<Outcome> {
    let mut rows = vec![];
    for contender in [Contender::KernelTcp, Contender::SinglePath, Contender::Weft] {
        if contender == Contender::KernelTcp && !stage.carries_tcp() {
            continue;
        }
        let name = contender.name();
        observe(&format!("{name}: a path loses 1%"));
        let (loss, lossy_latency_us, cipher) =
            loss_act(stage, contender).with_context(|| format!("{name}, lossy path"))?;
        observe(&format!("{name}: a path dies"));
        let (death, death_latency) =
            death_act(stage, contender).with_context(|| format!("{name}, dying path"))?;
        let (dead_at, ended_at) = (death.events[0].0, death.events[1].0 + REPAIRED.as_secs_f64());
        rows.push(Row {
            contender,
            cipher,
            healthy_bps: loss.goodput.mean_bps(WARM_UP, loss.events[0].0),
            lossy_bps: {
                let lossy_at = loss.events[0].0;
                loss.goodput.mean_bps(lossy_at + WARM_UP, lossy_at + LOSSY.as_secs_f64() - 0.1)
            },
            lossy_latency_us,
            back_after_seconds: death.goodput.back_after(dead_at),
            before_death_bps: death.goodput.before(dead_at),
            after_repair_bps: death.goodput.mean_bps(ended_at - 0.5, ended_at - 0.1),
            longest_wait_seconds: death_latency.max / 1e6,
            loss,
            death,
        });
    }
    Ok(Outcome { stage: stage.about(), rows })
}

/// Runs the first act: all paths are healthy, then one loses packets. Requests run beside the bulk transfer all the
/// time, so that a lower goodput is due to the path and not to the processors; only requests of the second part count.
fn loss_act(
    stage: &mut dyn Stage,
    contender: Contender,
) -> Result<(Act, LatencyMicros, Option<String>)> {
    stage.reset()?;
    let bulk = start(stage, contender, LOSSY_PATH, TestKind::Throughput, HEALTHY + LOSSY)?;
    start(stage, contender, LOSSY_PATH, TestKind::Latency, HEALTHY)?.finish()?;
    stage.set(LOSSY_PATH, Condition::Lossy)?;
    let lossy_at = Clock.now().as_nanos();
    let requests = start(stage, contender, LOSSY_PATH, TestKind::Latency, LOSSY)?;
    let (requests, bulk) = (requests.finish()?, bulk.finish()?);
    let act = Act::new(bulk.goodput, &[(lossy_at, "a path loses 1%")]);
    Ok((act, requests.latency, bulk.cipher))
}

/// Runs the second act: one path loses packets all the time, another fails and is repaired.
fn death_act(stage: &mut dyn Stage, contender: Contender) -> Result<(Act, LatencyMicros)> {
    stage.reset()?;
    stage.set(LOSSY_PATH, Condition::Lossy)?;
    let span = HEALTHY + DEAD + REPAIRED;
    let bulk = start(stage, contender, DYING_PATH, TestKind::Throughput, span)?;
    let requests = start(stage, contender, DYING_PATH, TestKind::Latency, span)?;
    sleep(HEALTHY);
    stage.set(DYING_PATH, Condition::Dead)?;
    let dead_at = Clock.now().as_nanos();
    sleep(DEAD);
    stage.set(DYING_PATH, Condition::Healthy)?;
    let repaired_at = Clock.now().as_nanos();
    let (requests, bulk) = (requests.finish()?, bulk.finish()?);
    let events = [(dead_at, "a path dies"), (repaired_at, "repaired")];
    Ok((Act::new(bulk.goodput, &events), requests.latency))
}

impl Act {
    fn new(goodput: Goodput, events: &[(u64, &'static str)]) -> Self {
        let events = events.iter().map(|&(at, label)| (goodput.seconds_at(at), label)).collect();
        Self { goodput, events }
    }
}

fn start(
    stage: &mut dyn Stage,
    contender: Contender,
    unlucky: usize,
    kind: TestKind,
    span: Duration,
) -> Result<Running> {
    if contender == Contender::KernelTcp {
        let pair = stage.open_tcp(unlucky)?;
        return Ok(tcp::start(pair, kind, span));
    }
    let (size, outstanding) = match kind {
        TestKind::Throughput => (BULK_MESSAGE, BULK_OUTSTANDING),
        TestKind::Latency | TestKind::Messages => (REQUEST_BYTES, 1),
    };
    let plan = Plan::new(kind, size, outstanding, false)?;
    let flow = flow::FlowConfig { transport: contender.transport(), plan, span };
    let (client, server) = stage.open(&flow, contender.route(unlucky))?;
    Ok(flow::start(client, server))
}
