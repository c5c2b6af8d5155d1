//! Ring all-reduce with its real dependencies (Patarasuk and Yuan 2009; NCCL's ring).
//!
//! N ranks cut their data into N chunks. In each of 2(N-1) steps every rank sends one chunk to its
//! successor, and it may begin step k+1 only when the chunk of step k has arrived from its
//! predecessor: that chunk is what it sends on. Reduction itself takes no time here.

use serde::{Deserialize, Serialize};
use weft_topo::NodeId;
use weft_units::{ByteCount, Duration};

use super::{HostSet, Recipe, Setting, Workload, WorkloadError, at_least_one};
use crate::time::{SimSpan, SimTime};
use crate::traffic::{ChannelId, Notice, Order, Side};
use crate::world::Session;

/// A ring all-reduce.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The ranks, in ring order.
    pub hosts: HostSet,
    /// Puts the ranks in a random order first, as a scheduler that does not know the topology does.
    pub shuffle: bool,
    /// Rings the hosts are dealt to in turn: with one for each rail of a server, a rail stays
    /// among itself. Each ring reduces `size` bytes of its own.
    pub rings: u32,
    /// Bytes each rank contributes.
    pub size: ByteCount,
    /// All-reduces, one after another; zero goes on until the other workloads are done.
    pub iterations: u32,
    /// When the first starts.
    pub start: Duration,
    /// With `pause`, no all-reduce starts later than this after the first of a burst.
    pub active: Duration,
    /// How long a burst is followed by silence; zero never pauses.
    pub pause: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            hosts: HostSet::all(),
            shuffle: false,
            rings: 1,
            size: ByteCount(16_000_000),
            iterations: 1,
            start: Duration::ZERO,
            active: Duration::ZERO,
            pause: Duration::ZERO,
        }
    }
}

/// One finished all-reduce.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Iteration {
    /// When it started, microseconds of simulated time.
    pub start_us: f64,
    /// How long the slowest rank took, microseconds.
    pub time_us: f64,
    /// 2(N-1)/N times size by time, as nccl-tests reports it, Gb/s.
    pub bus_gbps: f64,
}

impl Recipe for Config {
    fn build(&self, setting: &Setting<'_>) -> Result<Box<dyn Workload>, WorkloadError> {
        let rings = at_least_one("rings", self.rings)?;
        let mut hosts = self.hosts.resolve(setting.topology.hosts(), rings.saturating_mul(2))?;
        if self.shuffle {
            setting.seed.rng().shuffle(&mut hosts);
        }
        let ranks = u32::try_from(hosts.len()).expect("fewer than 2^20 hosts") / rings;
        let most = u64::from(u32::MAX).saturating_mul(ranks.into());
        let (key, got) = ("size", self.size.0);
        let chunk = u32::try_from(got.div_ceil(ranks.into()))
            .ok()
            .filter(|&chunk| chunk > 0)
            .ok_or(WorkloadError::Size { key, got, most })?;
        let dealt = |ring: u32| {
            let members = hosts.iter().skip(ring as usize).step_by(rings as usize);
            Ring::new(members.copied().take(ranks as usize).collect())
        };
        let rings = (0..rings).map(dealt).collect();
        Ok(Box::new(AllReduce { config: self.clone(), rings, chunk, ..AllReduce::default() }))
    }
}

#[derive(Debug, Default)]
struct AllReduce {
    config: Config,
    rings: Vec<Ring>,
    chunk: u32,
    /// Chunks that have to arrive before this all-reduce is over.
    outstanding: u64,
    started: SimTime,
    /// When this burst began.
    burst: SimTime,
    finished: Vec<Iteration>,
    /// A channel closed: this all-reduce will never finish.
    broken: bool,
}

/// The ranks of one ring, and how far each is.
#[derive(Debug)]
struct Ring {
    hosts: Vec<NodeId>,
    /// The channel from each rank to its successor.
    channels: Vec<ChannelId>,
}

impl Ring {
    fn new(hosts: Vec<NodeId>) -> Self {
        Self { hosts, channels: Vec::new() }
    }

    fn steps(&self) -> u64 {
        2 * (self.hosts.len() as u64 - 1)
    }
}

/// Which ring, which rank sends, and which step: a message's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chunk {
    ring: u16,
    rank: u32,
    step: u32,
}

impl Chunk {
    /// Ring above rank above step: 12, 20 and 32 bits.
    fn to_tag(self) -> u64 {
        u64::from(self.ring) << 52 | u64::from(self.rank) << 32 | u64::from(self.step)
    }

    #[expect(clippy::cast_possible_truncation, reason = "takes a tag apart")]
    fn from_tag(tag: u64) -> Self {
        Self { ring: (tag >> 52) as u16, rank: (tag >> 32) as u32 & 0xf_ffff, step: tag as u32 }
    }
}

impl AllReduce {
    fn begin(&mut self, session: &mut Session<'_>) {
        self.started = session.now();
        self.outstanding =
            self.rings.iter().map(|ring| ring.hosts.len() as u64 * ring.steps()).sum();
        for ring in 0..self.rings.len() {
            for rank in 0..self.rings[ring].hosts.len() {
                let ring = u16::try_from(ring).expect("fewer than 4096 rings");
                let rank = u32::try_from(rank).expect("fewer than 2^20 ranks");
                self.send(Chunk { ring, rank, step: 0 }, session);
            }
        }
    }

    fn send(&self, chunk: Chunk, session: &mut Session<'_>) {
        let channel = self.rings[usize::from(chunk.ring)].channels[chunk.rank as usize];
        let (from, length, tag) = (Side::Opener, self.chunk, chunk.to_tag());
        session.send(Order { channel, from, length, tag, recorded: false });
    }

    /// A rank received its predecessor's chunk: it sends it on, if there is a next step.
    fn received(&mut self, chunk: Chunk, session: &mut Session<'_>) {
        self.outstanding -= 1;
        let ring = &self.rings[usize::from(chunk.ring)];
        let (ranks, step) = (ring.hosts.len(), chunk.step + 1);
        if u64::from(step) < ring.steps() {
            let rank = (chunk.rank as usize + 1) % ranks;
            let rank = u32::try_from(rank).expect("fewer than 2^20 ranks");
            self.send(Chunk { rank, step, ..chunk }, session);
        }
        if self.outstanding == 0 {
            self.finish(session);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "sizes and times of a report")]
    fn finish(&mut self, session: &mut Session<'_>) {
        let took = session.now().since(self.started);
        let ranks = self.rings[0].hosts.len() as f64;
        let bits = self.config.size.0 as f64 * 8.0 * 2.0 * (ranks - 1.0) / ranks;
        self.finished.push(Iteration {
            start_us: self.started.since(SimTime::EPOCH).as_micros_f64(),
            time_us: took.as_micros_f64(),
            bus_gbps: bits / took.as_secs_f64() / 1e9,
        });
        if !self.has_all() {
            self.next(session);
        }
    }

    /// Begins the next all-reduce, or sleeps to the next burst.
    fn next(&mut self, session: &mut Session<'_>) {
        let burst_over = session.now().since(self.burst) >= SimSpan::from(self.config.active);
        if self.config.pause > Duration::ZERO && burst_over {
            session.wake(session.now() + SimSpan::from(self.config.pause), 0);
        } else {
            self.begin(session);
        }
    }

    fn has_all(&self) -> bool {
        let asked = self.config.iterations as usize;
        asked > 0 && self.finished.len() >= asked
    }
}

impl Workload for AllReduce {
    fn start(&mut self, session: &mut Session<'_>) {
        for ring in &mut self.rings {
            let next = ring.hosts.iter().cycle().skip(1);
            let pairs = ring.hosts.iter().zip(next);
            ring.channels = pairs.map(|(&rank, &next)| session.open(rank, next)).collect();
        }
        session.wake(SimTime::EPOCH + SimSpan::from(self.config.start), 0);
    }

    fn notice(&mut self, notice: &Notice, session: &mut Session<'_>) {
        match notice {
            Notice::Woken { .. } => {
                self.burst = session.now();
                self.begin(session);
            }
            Notice::Delivered { order } => self.received(Chunk::from_tag(order.tag), session),
            Notice::Closed { .. } => self.broken = true,
            Notice::Sent { .. } => {}
        }
    }

    fn is_done(&self) -> bool {
        self.broken || self.config.iterations == 0 || self.has_all()
    }

    fn iterations(&self) -> &[Iteration] {
        &self.finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_says_ring_rank_and_step() {
        let chunk = Chunk { ring: 4095, rank: 0xf_fffe, step: 2_000_000 };
        assert_eq!(Chunk::from_tag(chunk.to_tag()), chunk);
    }
}
