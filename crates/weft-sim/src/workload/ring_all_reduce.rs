//! Ring all-reduce with its real dependencies (Patarasuk and Yuan 2009; NCCL's ring).
//!
//! N ranks cut their data into N chunks. In each of 2(N-1) steps every rank sends one chunk to its successor, and it
//! may begin step k+1 only when the chunk of step k has arrived from its predecessor: it forwards that chunk.
//! Reduction itself takes no time here.
//!
//! A chunk may be cut into slices, each of which is forwarded as it arrives (NCCL's pipelining): with two or more, a
//! port is not idle for a round of latency after every step. With several queue pairs between two ranks slices are
//! dealt to them in turn, as NCCL deals messages, so that each is a flow with a path of its own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::NodeId;
use weft_units::{ByteCount, Duration, Seed};

use super::{HostSet, Iteration, Setting, Workload, WorkloadBuilder, WorkloadError, one_to_64};
use crate::time::{SimSpan, SimTime};
use crate::traffic::{ChannelId, Notice, SendRequest, Side};
use crate::world::Session;

/// Maximum number of rings: a message's tag has 12 bits for the ring.
const MAX_RINGS: u32 = 1 << 12;

/// The settings of the `ring-all-reduce` workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The ranks.
    pub hosts: HostSet,
    /// The order of the servers around the ring. A server is as many consecutive hosts as there are rings.
    pub order: RingOrder,
    /// Number of rings the hosts are dealt to in turn, 1 to 4096: with one per rail of a server, traffic stays on its
    /// rail. Each ring reduces `size` bytes of its own.
    pub rings: u32,
    /// Bytes each rank contributes.
    pub size: ByteCount,
    /// Slices of each chunk, 1 to 256; each is forwarded as it arrives.
    pub slices: u32,
    /// Connections from a rank to its successor, 1 to 64, to which slices are dealt in turn.
    pub queue_pairs: u32,
    /// Number of all-reduces, one after another; zero continues until the other workloads are done.
    pub iterations: u32,
    /// The start of the first all-reduce, from the start of the run.
    pub start: Duration,
    /// Duration of a burst: no all-reduce starts later than this after the first of its burst. Requires `pause`.
    pub active: Duration,
    /// Idle time after a burst; zero never pauses.
    pub pause: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            hosts: HostSet::all(),
            order: RingOrder::Listed,
            rings: 1,
            size: ByteCount(16_000_000),
            slices: 1,
            queue_pairs: 1,
            iterations: 1,
            start: Duration::ZERO,
            active: Duration::ZERO,
            pause: Duration::ZERO,
        }
    }
}

/// The order of servers around a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RingOrder {
    /// The order of the list.
    #[default]
    Listed,
    /// A random order, as from a scheduler that does not know the topology.
    Shuffled,
    /// Servers alternate between the first and the second half of the list. With the halves in two segments every hop
    /// crosses the layer above: this order loads that layer most.
    Alternating,
}

impl WorkloadBuilder for Config {
    fn build(&self, setting: &Setting<'_>) -> Result<Box<dyn Workload>, WorkloadError> {
        let rings = self.checked_rings()?;
        let hosts = self.hosts.resolve(setting.topology.hosts(), rings.saturating_mul(2))?;
        let hosts = self.order.apply(&hosts, rings, setting.seed);
        let ranks = u32::try_from(hosts.len()).expect("fewer than 2^20 hosts") / rings;
        let slices = self.checked_slices()?;
        one_to_64("queue_pairs", self.queue_pairs)?;
        let pieces = u64::from(ranks) * u64::from(slices);
        let max = u64::from(u32::MAX).saturating_mul(pieces);
        let (key, got) = ("size", self.size.0);
        let slice = u32::try_from(got.div_ceil(pieces))
            .ok()
            .filter(|&slice| slice > 0)
            .ok_or(WorkloadError::Size { key, got, max })?;
        let dealt = |ring: u32| {
            let members = hosts.iter().skip(ring as usize).step_by(rings as usize);
            Ring::new(members.copied().take(ranks as usize).collect())
        };
        let rings = (0..rings).map(dealt).collect();
        Ok(Box::new(AllReduce { config: self.clone(), rings, slice, ..AllReduce::default() }))
    }
}

impl Config {
    /// Returns the number of rings if a tag can number them.
    fn checked_rings(&self) -> Result<u32, WorkloadError> {
        let (key, got, expected) = ("rings", self.rings.to_string(), "1 to 4096");
        let fits = (1..=MAX_RINGS).contains(&self.rings);
        if fits { Ok(self.rings) } else { Err(WorkloadError::OutOfRange { key, got, expected }) }
    }

    /// Returns the number of slices if it is in its range.
    fn checked_slices(&self) -> Result<u32, WorkloadError> {
        let (key, got, expected) = ("slices", self.slices.to_string(), "1 to 256");
        let fits = (1..=256).contains(&self.slices);
        if fits { Ok(self.slices) } else { Err(WorkloadError::OutOfRange { key, got, expected }) }
    }
}

impl RingOrder {
    /// Returns the servers of `rails` hosts each in this order, with the order of hosts in a server kept.
    fn apply(self, hosts: &[NodeId], rails: u32, seed: Seed) -> Vec<NodeId> {
        let mut servers: Vec<&[NodeId]> = hosts.chunks(rails as usize).collect();
        match self {
            Self::Listed => {}
            Self::Shuffled => seed.rng().shuffle(&mut servers),
            Self::Alternating => {
                let half = servers.len().div_ceil(2);
                let pair = |index| [servers.get(index), servers.get(half + index)];
                servers = (0..half).flat_map(pair).flatten().copied().collect();
            }
        }
        servers.concat()
    }
}

/// The workload: the rings, and the all-reduce in progress.
#[derive(Debug, Default)]
struct AllReduce {
    config: Config,
    rings: Vec<Ring>,
    /// The bytes of a slice.
    slice: u32,
    /// Number of slices that must arrive before this all-reduce is complete.
    outstanding: u64,
    started: SimTime,
    /// The start of this burst.
    burst: SimTime,
    finished: Vec<Iteration>,
    /// `true` if a channel closed: this all-reduce will never finish.
    broken: bool,
}

/// The ranks of one ring, and their progress.
#[derive(Debug)]
struct Ring {
    hosts: Vec<NodeId>,
    /// The channels from each rank to its successor, rank by rank.
    channels: Vec<ChannelId>,
}

impl Ring {
    fn new(hosts: Vec<NodeId>) -> Self {
        Self { hosts, channels: Vec::new() }
    }

    /// Returns the number of steps of an all-reduce.
    fn steps(&self) -> u64 {
        2 * (self.hosts.len() as u64 - 1)
    }
}

/// A message's tag: ring, sending rank, step, and slice of the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slice {
    ring: u16,
    rank: u32,
    step: u32,
    number: u8,
}

impl Slice {
    /// Returns the tag: ring above rank above step above number: 12, 20, 24 and 8 bits.
    fn to_tag(self) -> u64 {
        let (ring, rank, step) = (u64::from(self.ring), u64::from(self.rank), u64::from(self.step));
        ring << 52 | rank << 32 | step << 8 | u64::from(self.number)
    }

    #[expect(clippy::cast_possible_truncation, reason = "takes a tag apart")]
    fn from_tag(tag: u64) -> Self {
        Self {
            ring: (tag >> 52) as u16,
            rank: (tag >> 32) as u32 & 0xf_ffff,
            step: (tag >> 8) as u32 & 0xff_ffff,
            number: tag as u8,
        }
    }
}

impl AllReduce {
    /// Begins an all-reduce: every rank sends its first chunk.
    fn begin(&mut self, session: &mut Session<'_>) {
        self.started = session.now();
        let chunks = |ring: &Ring| ring.hosts.len() as u64 * ring.steps();
        self.outstanding =
            self.rings.iter().map(chunks).sum::<u64>() * u64::from(self.config.slices);
        for ring in 0..self.rings.len() {
            for rank in 0..self.rings[ring].hosts.len() {
                let ring = u16::try_from(ring).expect("at most 4096 rings");
                let rank = u32::try_from(rank).expect("fewer than 2^20 ranks");
                for number in 0..self.config.slices {
                    let number = u8::try_from(number).expect("at most 256 slices");
                    self.send(Slice { ring, rank, step: 0, number }, session);
                }
            }
        }
    }

    /// Sends a slice from its rank to the successor.
    fn send(&self, slice: Slice, session: &mut Session<'_>) {
        let Config { slices, queue_pairs, .. } = self.config;
        let pair = (slice.step * slices + u32::from(slice.number)) % queue_pairs;
        let place = slice.rank as usize * queue_pairs as usize + pair as usize;
        let channel = self.rings[usize::from(slice.ring)].channels[place];
        let (from, length, tag) = (Side::Opener, self.slice, slice.to_tag());
        session.send(SendRequest { channel, from, length, tag, recorded: false });
    }

    /// Handles a slice from a rank's predecessor: the rank forwards it, if there is a next step.
    fn received(&mut self, slice: Slice, session: &mut Session<'_>) {
        self.outstanding -= 1;
        let ring = &self.rings[usize::from(slice.ring)];
        let (ranks, step) = (ring.hosts.len(), slice.step + 1);
        if u64::from(step) < ring.steps() {
            let rank = (slice.rank as usize + 1) % ranks;
            let rank = u32::try_from(rank).expect("fewer than 2^20 ranks");
            self.send(Slice { rank, step, ..slice }, session);
        }
        if self.outstanding == 0 {
            self.finish(session);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "sizes and times of a report")]
    fn finish(&mut self, session: &mut Session<'_>) {
        let duration = session.now().since(self.started);
        let ranks = self.rings[0].hosts.len() as f64;
        let bits = self.config.size.0 as f64 * 8.0 * 2.0 * (ranks - 1.0) / ranks;
        self.finished.push(Iteration {
            start_us: self.started.since(SimTime::EPOCH).as_micros_f64(),
            time_us: duration.as_micros_f64(),
            bus_gbps: bits / duration.as_secs_f64() / 1e9,
            shares: None,
        });
        if !self.has_all_iterations() {
            self.next(session);
        }
    }

    /// Begins the next all-reduce, or waits for the next burst.
    fn next(&mut self, session: &mut Session<'_>) {
        let is_burst_over = session.now().since(self.burst) >= SimSpan::from(self.config.active);
        if self.config.pause > Duration::ZERO && is_burst_over {
            session.wake(session.now() + SimSpan::from(self.config.pause), 0);
        } else {
            self.begin(session);
        }
    }

    fn has_all_iterations(&self) -> bool {
        let requested = self.config.iterations as usize;
        requested > 0 && self.finished.len() >= requested
    }
}

impl Workload for AllReduce {
    fn start(&mut self, session: &mut Session<'_>) {
        let count = self.config.queue_pairs as usize;
        for ring in &mut self.rings {
            let next = ring.hosts.iter().cycle().skip(1);
            let pairs = ring.hosts.iter().zip(next);
            let pairs = pairs.flat_map(|pair| std::iter::repeat_n(pair, count));
            ring.channels = pairs.map(|(&rank, &next)| session.open(rank, next)).collect();
        }
        session.wake(SimTime::EPOCH + SimSpan::from(self.config.start), 0);
    }

    fn on_notice(&mut self, notice: &Notice, session: &mut Session<'_>) {
        match notice {
            Notice::Woken { .. } => {
                self.burst = session.now();
                self.begin(session);
            }
            Notice::Delivered { request } => self.received(Slice::from_tag(request.tag), session),
            Notice::Closed { .. } => self.broken = true,
            Notice::Acknowledged { .. } => {}
        }
    }

    fn opens_during_run(&self) -> bool {
        false
    }

    fn is_done(&self) -> bool {
        self.broken || self.config.iterations == 0 || self.has_all_iterations()
    }

    fn iterations(&self) -> &[Iteration] {
        &self.finished
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weft_topo::build::LeafSpine;

    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn a_tag_holds_ring_rank_step_and_slice() {
        let slice = Slice { ring: 4095, rank: 0xf_fffe, step: 0x1f_fffc, number: 255 };
        assert_eq!(Slice::from_tag(slice.to_tag()), slice);
    }

    #[test]
    fn more_rings_than_a_tag_can_number_are_refused() {
        let topology =
            LeafSpine { leaves: 2, spines: 1, hosts_per_leaf: 4097, ..LeafSpine::default() };
        let topology = topology.build().unwrap();
        let setting = Setting { topology: &topology, seed: Seed(1), folder: Path::new("") };
        let build = |rings| Config { rings, ..Config::default() }.build(&setting).map(|_| ());
        assert_eq!(build(4096), Ok(()));
        let error = build(4097).unwrap_err().to_string();
        assert_eq!(error, "rings is 4097, expected 1 to 4096");
    }

    #[test]
    fn a_shuffle_keeps_the_hosts_of_a_server_together() {
        let hosts: Vec<_> = (0..40).map(NodeId).collect();
        let shuffled = RingOrder::Shuffled.apply(&hosts, 4, Seed(1));
        assert_ne!(shuffled, hosts);
        for server in shuffled.chunks(4) {
            let first = server[0].0;
            assert_eq!(first % 4, 0);
            assert_eq!(server, [0, 1, 2, 3].map(|rail| NodeId(first + rail)));
        }
    }

    #[test]
    fn alternating_servers_are_of_one_half_and_the_other_in_turn() {
        let alternating = |hosts: u32, rails| {
            let hosts: Vec<_> = (0..hosts).map(NodeId).collect();
            let order = RingOrder::Alternating.apply(&hosts, rails, Seed(1));
            order.into_iter().map(|host| host.0).collect::<Vec<_>>()
        };
        assert_eq!(alternating(6, 1), [0, 3, 1, 4, 2, 5]);
        assert_eq!(alternating(5, 1), [0, 3, 1, 4, 2]);
        assert_eq!(alternating(8, 2), [0, 1, 4, 5, 2, 3, 6, 7]);
    }

    fn bus_gbps(slices: u32) -> f64 {
        let text = format!(
            r#"
            topology = {{ kind = "leaf-spine", leaves = 1, spines = 1, hosts_per_leaf = 8 }}
            [[workload]]
            kind = "ring-all-reduce"
            size = "8MB"
            slices = {slices}
            "#
        );
        let scenario = Scenario::parse(&text, Path::new("")).unwrap();
        let report = crate::run(&scenario, Seed(1)).unwrap();
        assert!(report.finished);
        report.workloads[0].bus_gbps.mean
    }

    #[test]
    fn slices_hide_the_latency_of_a_step() {
        // A chunk of 1 MB takes 82 us with its headers, and a step 2 us of latency more; 100 Gb/s carry 98.1 of
        // payload, less the ACKs' share.
        let (one, four) = (bus_gbps(1), bus_gbps(4));
        assert!((93.0..96.0).contains(&one), "{one}");
        assert!((96.5..98.1).contains(&four), "{four}");
    }

    #[test]
    fn queue_pairs_are_flows_that_take_paths_of_their_own() {
        let bus_gbps = |queue_pairs: u32| {
            let text = format!(
                r#"
                topology = {{ kind = "leaf-spine", leaves = 2, spines = 8, hosts_per_leaf = 1, uplink_rates = ["25Gbps"] }}
                transport = {{ profile = "ecmp" }}
                [[workload]]
                kind = "ring-all-reduce"
                size = "8MB"
                slices = 16
                queue_pairs = {queue_pairs}
                "#
            );
            let report =
                crate::run(&Scenario::parse(&text, Path::new("")).unwrap(), Seed(1)).unwrap();
            assert!(report.finished);
            report.workloads[0].bus_gbps.mean
        };
        // One flow has one uplink of 25 Gb/s; eight with a queue pair each use several.
        let (one, eight) = (bus_gbps(1), bus_gbps(8));
        assert!(one < 25.0 && eight > 1.5 * one, "{one} {eight}");
    }

    #[test]
    fn no_slices_and_too_many_are_refused() {
        for slices in [0, 257] {
            let config = Config { slices, ..Config::default() };
            let error = config.checked_slices().unwrap_err().to_string();
            assert_eq!(error, format!("slices is {slices}, expected 1 to 256"));
        }
    }
}
