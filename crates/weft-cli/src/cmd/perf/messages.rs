//! `weft perf` over X-RDMA messages (XR-Perf, section VI.B): a flow model makes calls, and the time of each call
//! counts from its due time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use hdrhistogram::Histogram;
use serde::Serialize;
use weft_perf::{LatencyMicros, latency_histogram};
use weft_report::{Cell, Column, Table, Unit};
use weft_sim::workload::sizes::Sizes;
use weft_units::{Duration, Instant, Rng, Seed};
use weft_xrdma::{ChannelId, Decomposition, Event, Node, SendError};

use super::model::{Call, Kind, Model, Shape};
use super::{ClientArgs, resolve};
use crate::messages::{self, Lender, NodeOptions};
use weft_report::terminal::{Output, render};

/// Options of a client of messages.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Measure messages over RDMA (X-RDMA) instead; the server needs --messages too
    #[arg(long)]
    pub(super) messages: bool,
    /// The flow model: the calls, and their due times
    #[arg(long, value_enum, default_value = "ping-pong")]
    model: Kind,
    /// Calls per second of open-loop arrivals
    #[arg(long, default_value_t = 1000)]
    rate: u32,
    /// Sizes of rpc-mix: a published distribution (`weft list sizes`), one size, or a file
    #[arg(long, default_value = "google-rpc")]
    sizes: String,
    /// Trace one of this number of calls: where its time went
    #[arg(long, default_value_t = 0, value_name = "N")]
    trace_every: u32,
    #[command(flatten)]
    node: NodeOptions,
}

/// The time limit for calls in flight after the end of the measurement.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest sleep of the client when no call is due.
const MAX_SLEEP: Duration = Duration::from_millis(10);

pub(super) fn measure(arguments: &ClientArgs, output: Output) -> Result<()> {
    let Args { model: kind, rate, trace_every, node: options, sizes, .. } = &arguments.messages;
    let default_channels = if *kind == Kind::PingPong { 1 } else { 4 };
    let size = arguments.size.map(|size| u32::try_from(size.0)).transpose();
    let shape = Shape {
        size: size
            .ok()
            .filter(|size| size.is_none_or(|size| size < 1 << 31))
            .ok_or_else(|| anyhow!("--size is too large: messages have up to 64 MiB"))?,
        sizes: Sizes::find(sizes, Path::new("."))?,
        rate: f64::from(*rate),
        outstanding: arguments.outstanding.unwrap_or(4).max(1),
        channels: arguments.connections.unwrap_or(default_channels),
    };
    if *rate == 0 {
        bail!("--rate 0 makes no calls; expected at least 1 a second");
    }
    let mut node = options.open(*trace_every)?;
    let servers: Vec<SocketAddr> = arguments
        .servers
        .iter()
        .map(|server| resolve(server, messages::DEFAULT_PORT))
        .collect::<Result<_>>()?;
    let channels: Vec<ChannelId> = (0..shape.channels as usize)
        .map(|index| servers[index % servers.len()])
        .map(|server| {
            node.connect_and_wait(server)
                .with_context(|| format!("no channel to {server} (`weft perf server --messages`)"))
        })
        .collect::<Result<_>>()?;
    let model = kind.build(&shape);
    let mut run = Run::new(node, channels, model);
    run.go(arguments.duration)?;
    let report = run.report(*kind);
    output.value(&report, || text(&report))
}

/// A run of a model.
struct Run {
    node: Node,
    channels: Vec<ChannelId>,
    model: Box<dyn Model>,
    rng: Rng,
    lender: Lender,
    began: Instant,
    /// The end of the run, since it began.
    ended: Duration,
    /// Calls without a response yet, by number.
    in_flight: BTreeMap<u64, Call>,
    /// The durations of calls by class, nanoseconds.
    durations: Vec<Histogram<u64>>,
    /// The parts of traced calls' time, nanoseconds: the request's way, the peer, the response's way.
    traced: [Histogram<u64>; 3],
    bytes: u64,
    calls: u64,
    refused: u64,
}

impl Run {
    fn new(node: Node, channels: Vec<ChannelId>, model: Box<dyn Model>) -> Self {
        let durations = model.classes().iter().map(|_| latency_histogram()).collect();
        Self {
            began: node.now(),
            node,
            channels,
            model,
            rng: Seed(1).child("perf", 0).rng(),
            lender: Lender::default(),
            ended: Duration::ZERO,
            in_flight: BTreeMap::new(),
            durations,
            traced: [latency_histogram(), latency_histogram(), latency_histogram()],
            bytes: 0,
            calls: 0,
            refused: 0,
        }
    }

    /// Returns the time since the run began.
    fn at(&self) -> Duration {
        self.node.now().since(self.began)
    }

    /// Makes calls for `duration`, and waits up to 5 s for the responses.
    fn go(&mut self, duration: Duration) -> Result<()> {
        loop {
            let at = self.at();
            if at < duration {
                let Self { node, channels, model, rng, lender, in_flight, .. } = self;
                self.refused += send_due(&mut **model, at, rng, |call| {
                    let channel = channels[call.channel as usize];
                    let Some(id) = send(node, lender, channel, &call)? else { return Ok(false) };
                    in_flight.insert(id, call);
                    Ok(true)
                })?;
            } else if self.in_flight.is_empty() || at > duration + DRAIN_TIMEOUT {
                self.ended = at;
                return Ok(());
            }
            let due = self.model.due().map_or(MAX_SLEEP, |due| due.saturating_sub(self.at()));
            self.node.wait(Some(due.min(MAX_SLEEP)));
            while let Some(event) = self.node.poll_event() {
                self.on_event(event)?;
            }
        }
    }

    fn on_event(&mut self, event: Event) -> Result<()> {
        let Event::Channel(event) = event else { return Ok(()) };
        match event {
            weft_msg::Event::Message { message, .. } => {
                let (len, role) = (message.len(), message.call);
                let now = self.node.now();
                self.node.context().release(now, message);
                let weft_xrdma::CallRole::Response(id) = role else { return Ok(()) };
                let Some(call) = self.in_flight.remove(&id) else { return Ok(()) };
                // A request shorter than the head of 4 bytes gets a response of its own length.
                if len != call.response && call.request >= 4 {
                    bail!("{len} bytes came where {} were asked for", call.response);
                }
                self.count(&call, now.since(self.began));
            }
            weft_msg::Event::Traced { time, .. } => {
                let Decomposition { request, peer, response, .. } = time;
                for (histogram, span) in self.traced.iter_mut().zip([request, peer, response]) {
                    histogram.saturating_record(span.as_nanos());
                }
            }
            weft_msg::Event::Closed { reason, .. } => bail!("a channel ended: {reason}"),
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, call: &Call, at: Duration) {
        self.calls += 1;
        self.bytes += u64::from(call.request) + u64::from(call.response);
        let took = at.saturating_sub(call.due);
        self.durations[call.class].saturating_record(took.as_nanos());
        if let Some((class, took)) = self.model.on_response(call, at) {
            self.durations[class].saturating_record(took.as_nanos());
        }
    }

    fn report(&self, kind: Kind) -> Report {
        let seconds = self.ended.as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = |count: u64| count as f64 / seconds;
        let class = |(name, histogram): (&&'static str, &Histogram<u64>)| Class {
            name,
            latency_us: LatencyMicros::of(histogram),
        };
        let names = ["request", "peer", "response"];
        Report {
            model: kind.name(),
            channels: self.channels.len(),
            seconds,
            calls: self.calls,
            calls_per_second: rate(self.calls),
            goodput_bps: 8.0 * rate(self.bytes),
            unanswered: self.in_flight.len(),
            refused: self.refused,
            classes: self.model.classes().iter().zip(&self.durations).map(class).collect(),
            traced: names
                .iter()
                .zip(&self.traced)
                .filter(|(_, histogram)| !histogram.is_empty())
                .map(class)
                .collect(),
        }
    }
}

/// Sends every call that is due by `at`; `send` returns `false` for one that is refused. Returns the number of refused
/// calls. The model gets these back at the end, since a closed-loop model makes a call again at once: it is sent after
/// the next poll, which may make room.
fn send_due(
    model: &mut dyn Model,
    at: Duration,
    rng: &mut Rng,
    mut send: impl FnMut(Call) -> Result<bool>,
) -> Result<u64> {
    let mut refused = Vec::new();
    while let Some(call) = model.next(at, rng) {
        if !send(call)? {
            refused.push(call);
        }
    }
    for call in &refused {
        model.on_response(call, call.due);
    }
    Ok(refused.len() as u64)
}

/// Sends the request of a call. Returns its number, or `None` if the messaging layer has no room for it.
fn send(
    node: &mut Node,
    lender: &mut Lender,
    channel: ChannelId,
    call: &Call,
) -> Result<Option<u64>> {
    let Some(body) = lender.body(node, call.request, call.response) else {
        bail!("no registered memory for a message of {} bytes (memory_limit)", call.request);
    };
    let now = node.now();
    match node.context().request(now, channel, body) {
        Ok(id) => Ok(Some(id)),
        Err(SendError::Full { .. } | SendError::Memory(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The results of a run.
#[derive(Debug, Serialize)]
struct Report {
    model: &'static str,
    channels: usize,
    seconds: f64,
    calls: u64,
    calls_per_second: f64,
    /// The rate of requests' and responses' bodies, bit/s.
    goodput_bps: f64,
    unanswered: usize,
    /// Calls that the messaging layer had no room for.
    refused: u64,
    classes: Vec<Class>,
    /// The parts of traced calls' time: the request's way, the peer, the response's way.
    traced: Vec<Class>,
}

#[derive(Debug, Serialize)]
struct Class {
    name: &'static str,
    latency_us: LatencyMicros,
}

fn text(report: &Report) -> String {
    let Report { model, channels, seconds, calls, .. } = report;
    let mut text = format!(
        "{model} over {channels} channel{}, {seconds:.1} s: {calls} calls, {}/s, {}\n",
        if *channels == 1 { "" } else { "s" },
        Unit::Count.format(report.calls_per_second),
        Unit::BitsPerSecond.format(report.goodput_bps),
    );
    if report.unanswered > 0 || report.refused > 0 {
        text += &format!("{} without an answer, {} refused\n", report.unanswered, report.refused);
    }
    let quantiles = ["p50", "p90", "p99", "p99.9", "max"];
    let columns = quantiles.map(|name| Column::number(name, name));
    let heads = [Column::text("class", "class"), Column::number("calls", "calls")];
    let mut table = Table::new(heads.into_iter().chain(columns).collect());
    for (class, prefix) in report
        .classes
        .iter()
        .map(|class| (class, ""))
        .chain(report.traced.iter().map(|class| (class, "traced: ")))
    {
        let LatencyMicros { count, p50, p90, p99, p999, max, .. } = class.latency_us;
        let time = |micros: f64| Cell::from(Unit::Seconds.format(micros / 1e6));
        let mut row = vec![Cell::from(format!("{prefix}{}", class.name)), count.into()];
        row.extend([p50, p90, p99, p999, max].map(time));
        table.push(row);
    }
    format!("{text}\n{}", render(&table))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use weft_sim::workload::sizes::Published;

    use super::*;

    #[test]
    fn refused_calls_are_made_again_after_the_next_poll() {
        let sizes = Sizes::published(Published::GoogleRpc);
        let shape = Shape { size: None, sizes, rate: 10_000.0, outstanding: 4, channels: 3 };
        for &kind in Kind::value_variants() {
            let (mut model, mut rng) = (kind.build(&shape), Seed(7).child("refused", 0).rng());
            for tick in 1..=3 {
                let (at, mut tried) = (Duration::from_millis(10 * tick), 0);
                let refuse = |_| {
                    tried += 1;
                    assert!(tried < 1000, "{}: the loop does not end", kind.name());
                    Ok(false)
                };
                let refused = send_due(&mut *model, at, &mut rng, refuse).unwrap();
                assert!(tried > 0 && refused == tried, "{}: {refused} of {tried}", kind.name());
            }
        }
    }

    #[test]
    fn mice_are_sent_while_elephants_are_refused() {
        let sizes = Sizes::published(Published::GoogleRpc);
        let shape = Shape { size: None, sizes, rate: 10_000.0, outstanding: 4, channels: 3 };
        let mut model = Kind::ElephantsMice.build(&shape);
        let (mut rng, mut mice) = (Seed(7).child("mice", 0).rng(), 0);
        let mut tried = 0;
        let take_mice = |call: Call| {
            tried += 1;
            assert!(tried < 1000, "the loop does not end");
            mice += u64::from(call.class == 1);
            Ok(call.class == 1)
        };
        let at = Duration::from_millis(10);
        let refused = send_due(&mut *model, at, &mut rng, take_mice).unwrap();
        assert!(refused == 4 && mice > 50, "{refused} elephants, {mice} mice");
    }
}
