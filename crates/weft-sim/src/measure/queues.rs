//! The queue depths of switch ports: sampled at regular intervals; the maximum is updated at every packet.

use std::collections::BTreeMap;

use serde::Serialize;
use weft_topo::{LinkId, Topology};

use super::counts::Counts;
use crate::fabric::Fabric;
use crate::time::SimTime;

/// The ports of one kind: `leaf-up`, `leaf-down`, `spine-down`, …
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueueReport {
    /// Number of ports that sent anything.
    pub ports: usize,
    /// The mean depth over those ports and all samples, bytes.
    pub mean_bytes: f64,
    /// The 99th percentile over those ports and all samples, bytes; at most a sixteenth too high.
    pub p99_bytes: u64,
    /// The deepest queue any packet found since the run began, itself included, bytes.
    pub max_bytes: u64,
    /// The deepest queue of all samples, which exclude the time before sampling began, bytes.
    pub sampled_max_bytes: u64,
    /// Packets marked by these ports.
    pub marked: u64,
    /// Packets these ports had no room for.
    pub refused: u64,
    /// The depth over time.
    pub series: Vec<QueuePoint>,
}

/// The depth in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct QueuePoint {
    /// The time of the sample, microseconds.
    pub time_us: f64,
    /// The mean over the ports that sent anything during the run, bytes.
    pub mean_bytes: f64,
    /// The deepest of these queues, bytes.
    pub max_bytes: u64,
}

/// Maximum number of points of a series; consecutive samples of a longer one are merged.
const MAX_POINTS: usize = 1000;

/// The samples of every switch port, by kind of port.
#[derive(Debug)]
pub struct QueueWatch {
    kinds: BTreeMap<String, Kind>,
}

#[derive(Debug, Default)]
struct Kind {
    ports: Vec<LinkId>,
    samples: Vec<Sample>,
    /// The depths of all samples that are not zero.
    depths: Counts,
}

/// One sample of all ports of a kind.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: SimTime,
    /// The sum of the ports' depths, bytes.
    sum: u64,
    /// The deepest queue, bytes.
    max: u64,
}

/// Returns a port's kind in the fabric: `host-up`, `leaf-up`, `leaf-down`, `spine-down`, …
pub fn kind_of_port(topology: &Topology, link: LinkId) -> String {
    let ends = topology.link(link);
    let (here, there) = (topology.tier(ends.from), topology.tier(ends.to));
    let tier = ["host", "leaf", "spine", "core"][usize::from(here.min(3))];
    let direction = match here.cmp(&there) {
        std::cmp::Ordering::Less => "up",
        std::cmp::Ordering::Equal => "across",
        std::cmp::Ordering::Greater => "down",
    };
    format!("{tier}-{direction}")
}

impl QueueWatch {
    /// Returns a watch of the switches of `topology`.
    pub fn new(topology: &Topology) -> Self {
        let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
        for link in topology.link_ids() {
            if topology.is_host(topology.link(link).from) {
                continue;
            }
            kinds.entry(kind_of_port(topology, link)).or_default().ports.push(link);
        }
        Self { kinds }
    }

    /// Takes one sample; `depth_of` returns the bytes that wait at a port.
    pub fn sample(&mut self, depth_of: impl Fn(LinkId) -> u64, now: SimTime) {
        for kind in self.kinds.values_mut() {
            let mut sample = Sample { at: now, sum: 0, max: 0 };
            for &link in &kind.ports {
                let depth = depth_of(link);
                sample.sum += depth;
                sample.max = sample.max.max(depth);
                if depth > 0 {
                    kind.depths.add(depth);
                }
            }
            kind.samples.push(sample);
        }
    }

    /// Returns the measured depths, by kind of port.
    pub fn report(&self, fabric: &Fabric) -> BTreeMap<String, QueueReport> {
        self.kinds.iter().map(|(name, kind)| (name.clone(), kind.report(fabric))).collect()
    }

    /// Returns the sampled depths of ports outside a simulation, by kind of port; `is_active` returns `true` for a port
    /// that sent anything. Kinds without such a port are left out.
    pub fn report_samples(
        &self,
        is_active: impl Fn(LinkId) -> bool,
    ) -> BTreeMap<String, QueueReport> {
        let active = |kind: &Kind| kind.ports.iter().filter(|&&link| is_active(link)).count();
        let kinds = self.kinds.iter().map(|(name, kind)| (name.clone(), active(kind), kind));
        let sampled = kinds.filter(|(_, active, _)| *active > 0);
        sampled.map(|(name, active, kind)| (name, kind.report_samples(active))).collect()
    }
}

impl Kind {
    fn report(&self, fabric: &Fabric) -> QueueReport {
        let links = || self.ports.iter().map(|&link| (link, fabric.link(link)));
        let active = links().filter(|(_, state)| state.bytes > 0).count();
        let deepest = |(link, state): (LinkId, &crate::link::Link)| {
            fabric.class(link).pace.bytes(state.max_backlog)
        };
        QueueReport {
            max_bytes: links().map(deepest).max().unwrap_or(0),
            marked: links().map(|(link, _)| u64::from(fabric.tally(link).marked)).sum(),
            refused: links().map(|(link, _)| u64::from(fabric.tally(link).refused)).sum(),
            ..self.report_samples(active)
        }
    }

    /// Returns what the samples show; `active` is the number of ports that sent anything.
    #[expect(clippy::cast_precision_loss, reason = "bytes of queues")]
    fn report_samples(&self, active: usize) -> QueueReport {
        let mean = |sum: u64, samples: usize| sum as f64 / (active.max(1) * samples.max(1)) as f64;
        let width = self.samples.len().div_ceil(MAX_POINTS).max(1);
        let point = |samples: &[Sample]| QueuePoint {
            time_us: samples[0].at.since(SimTime::EPOCH).as_micros_f64(),
            mean_bytes: mean(samples.iter().map(|sample| sample.sum).sum(), samples.len()),
            max_bytes: samples.iter().map(|sample| sample.max).max().unwrap_or(0),
        };
        QueueReport {
            ports: active,
            mean_bytes: mean(self.samples.iter().map(|s| s.sum).sum(), self.samples.len()),
            p99_bytes: self.depths.percentile(99, (active * self.samples.len()) as u64),
            sampled_max_bytes: self.samples.iter().map(|sample| sample.max).max().unwrap_or(0),
            series: self.samples.chunks(width).map(point).collect(),
            ..QueueReport::default()
        }
    }
}
