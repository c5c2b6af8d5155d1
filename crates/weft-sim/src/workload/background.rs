//! Background load between random pairs for the whole run: steady, or in bursts.
//!
//! Each host sends messages to one partner. `load` paces them to that share of the host's port rate; at 1 or more, the
//! next message follows as soon as the previous one is acknowledged.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::NodeId;
use weft_units::{BitRate, ByteCount, Duration, Rng};

use super::{
    HostSet, Setting, Workload, WorkloadBuilder, WorkloadError, message_size, random_ring,
};
use crate::pace::Pace;
use crate::time::{SimSpan, SimTime};
use crate::traffic::{ChannelId, Notice, SendRequest, Side};
use crate::world::Session;

/// The settings of the `background` workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The hosts that send and receive.
    pub hosts: HostSet,
    /// Bytes of each message.
    pub message: ByteCount,
    /// Share of the rate of each host's ports to fill, above 0; at 1 or more, a host sends as fast as the transport
    /// allows.
    pub load: f64,
    /// The start of the load, from the start of the run.
    pub start: Duration,
    /// Duration of each burst; without effect unless `pause` is set.
    pub active: Duration,
    /// Idle time after each burst; zero is a steady load.
    pub pause: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            hosts: HostSet::all(),
            message: ByteCount(1_000_000),
            load: 0.5,
            start: Duration::ZERO,
            active: Duration::ZERO,
            pause: Duration::ZERO,
        }
    }
}

impl WorkloadBuilder for Config {
    fn build(&self, setting: &Setting<'_>) -> Result<Box<dyn Workload>, WorkloadError> {
        if !(self.load > 0.0 && self.load.is_finite()) {
            let (key, got, expected) = ("load", self.load.to_string(), "above 0");
            return Err(WorkloadError::OutOfRange { key, got, expected });
        }
        let hosts = self.hosts.resolve(setting.topology.hosts(), 2)?;
        let message = message_size("message", self.message)?;
        let pairs = random_ring(hosts, setting.seed.child("pairs", 0));
        let streams = pairs.into_iter().map(|(source, destination)| {
            let ports = setting.topology.ports(source).iter();
            let rate = ports.map(|&port| setting.topology.link(port).rate.as_bps()).sum();
            let rate = BitRate::bps(rate).expect("a host has a port, and no rate is zero");
            let period = Pace::new(rate).span(message.into()).as_picos();
            Stream {
                source,
                destination,
                period: message_interval(period, self.load),
                channel: None,
            }
        });
        Ok(Box::new(Load {
            streams: streams.collect(),
            message,
            rng: setting.seed.child("phase", 0).rng(),
            config: self.clone(),
        }))
    }
}

/// Returns the time between two messages, or `None` if each follows the acknowledgement of the previous one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a saturating cast of a time of at most days"
)]
fn message_interval(period: u64, load: f64) -> Option<SimSpan> {
    (load < 1.0).then(|| SimSpan::from_picos((period as f64 / load) as u64))
}

/// The workload: a stream from each host.
#[derive(Debug)]
struct Load {
    config: Config,
    streams: Vec<Stream>,
    message: u32,
    rng: Rng,
}

/// The messages from one host to its partner.
#[derive(Debug)]
struct Stream {
    source: NodeId,
    destination: NodeId,
    /// The time between two messages; `None` if each follows the acknowledgement of the previous one.
    period: Option<SimSpan>,
    /// The channel while it is open.
    channel: Option<ChannelId>,
}

impl Load {
    /// Returns the time from `now` until the next burst, or `None` during a burst.
    fn time_to_burst(&self, now: SimTime) -> Option<SimSpan> {
        let (active, pause) = (SimSpan::from(self.config.active), SimSpan::from(self.config.pause));
        let start = SimTime::EPOCH + SimSpan::from(self.config.start);
        if now < start {
            return Some(start.since(now));
        }
        let cycle = active.as_picos() + pause.as_picos();
        if pause == SimSpan::ZERO || cycle == 0 {
            return None;
        }
        let into = now.since(start).as_picos() % cycle;
        (into >= active.as_picos()).then(|| SimSpan::from_picos(cycle - into))
    }

    /// Sends a message of a stream and schedules the next one; during a pause, only schedules the next one.
    fn send(&mut self, index: usize, session: &mut Session<'_>) {
        let tag = index as u64;
        if let Some(pause) = self.time_to_burst(session.now()) {
            let source = self.streams[index].source;
            return session.wake_at(source, session.now() + pause, tag);
        }
        let (length, stream) = (self.message, &self.streams[index]);
        if let Some(channel) = stream.channel {
            session.send(SendRequest { channel, from: Side::Opener, length, tag, recorded: false });
        }
        if let Some(period) = stream.period {
            session.wake_at(stream.source, session.now() + period, tag);
        }
    }
}

impl Workload for Load {
    fn start(&mut self, session: &mut Session<'_>) {
        for (stream, tag) in self.streams.iter_mut().zip(0..) {
            stream.channel = Some(session.open(stream.source, stream.destination));
            let phase = stream.period.map_or(0, |period| self.rng.below(period.as_picos().max(1)));
            let start = SimTime::EPOCH + SimSpan::from(self.config.start);
            session.wake_at(stream.source, start + SimSpan::from_picos(phase), tag);
        }
    }

    fn on_notice(&mut self, notice: &Notice, session: &mut Session<'_>) {
        match notice {
            Notice::Woken { token } => {
                self.send(usize::try_from(*token).expect("an index of ours"), session);
            }
            Notice::Acknowledged { request } => {
                let index = usize::try_from(request.tag).expect("an index of ours");
                if self.streams[index].period.is_none() {
                    self.send(index, session);
                }
            }
            Notice::Closed { channel, .. } => {
                for stream in &mut self.streams {
                    if stream.channel == Some(*channel) {
                        stream.channel = None;
                    }
                }
            }
            Notice::Delivered { .. } => {}
        }
    }

    fn opens_during_run(&self) -> bool {
        false
    }

    /// Always `true`: the run ends when the other workloads are done.
    fn is_done(&self) -> bool {
        true
    }
}
