//! How full the switches' ports are: looked at in regular intervals, and at every packet for the
//! deepest ever.

use std::collections::BTreeMap;

use serde::Serialize;
use weft_topo::{LinkId, Topology};

use crate::fabric::Fabric;
use crate::time::SimTime;

/// The ports of one kind: `leaf-up`, `leaf-down`, `spine-down`, …
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueueReport {
    /// Ports that sent anything.
    pub ports: usize,
    /// Mean depth over those ports and all samples, bytes.
    pub mean_bytes: f64,
    /// Deepest queue any packet found since the run began, itself included, bytes.
    pub max_bytes: u64,
    /// Deepest queue of all samples, which leave out what was before they began, bytes.
    pub sampled_max_bytes: u64,
    /// Packets marked by these ports.
    pub marked: u64,
    /// Packets these ports had no room for.
    pub refused: u64,
    /// Depth over time.
    pub series: Vec<QueuePoint>,
}

/// The depth in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct QueuePoint {
    /// When it was looked at, microseconds.
    pub time_us: f64,
    /// Mean over the ports that sent anything during the run, bytes.
    pub mean_bytes: f64,
    /// The deepest of them, bytes.
    pub max_bytes: u64,
}

/// A series longer than this is merged to half before it is reported.
const MOST_POINTS: usize = 1000;

/// Looks at every switch port, again and again.
#[derive(Debug)]
pub struct QueueWatch {
    kinds: BTreeMap<String, Kind>,
}

#[derive(Debug, Default)]
struct Kind {
    ports: Vec<LinkId>,
    samples: Vec<Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: SimTime,
    sum: u64,
    max: u64,
}

/// What a port is to the fabric: `host-up`, `leaf-up`, `leaf-down`, `spine-down`, …
pub(super) fn kind_of_port(topology: &Topology, link: LinkId) -> String {
    let ends = topology.link(link);
    let (here, there) = (topology.tier(ends.from), topology.tier(ends.to));
    let tier = ["host", "leaf", "spine", "core"][usize::from(here.min(3))];
    let way = match here.cmp(&there) {
        std::cmp::Ordering::Less => "up",
        std::cmp::Ordering::Equal => "across",
        std::cmp::Ordering::Greater => "down",
    };
    format!("{tier}-{way}")
}

impl QueueWatch {
    /// Watches the switches of `topology`.
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

    /// Looks once.
    pub fn sample(&mut self, fabric: &Fabric, now: SimTime) {
        for kind in self.kinds.values_mut() {
            let depths = kind.ports.iter().map(|&link| fabric.queued_bytes(link, now));
            let (sum, max) = depths.fold((0, 0), |(sum, max), depth| (sum + depth, depth.max(max)));
            kind.samples.push(Sample { at: now, sum, max });
        }
    }

    /// What was seen, by kind of port.
    pub fn report(&self, fabric: &Fabric) -> BTreeMap<String, QueueReport> {
        self.kinds.iter().map(|(name, kind)| (name.clone(), kind.report(fabric))).collect()
    }
}

impl Kind {
    #[expect(clippy::cast_precision_loss, reason = "bytes of queues")]
    fn report(&self, fabric: &Fabric) -> QueueReport {
        let links = || self.ports.iter().map(|&link| (link, fabric.link(link)));
        let active = links().filter(|(_, state)| state.bytes > 0).count();
        let mean = |sum: u64, samples: usize| sum as f64 / (active.max(1) * samples.max(1)) as f64;
        let width = self.samples.len().div_ceil(MOST_POINTS).max(1);
        let point = |samples: &[Sample]| QueuePoint {
            time_us: samples[0].at.since(SimTime::EPOCH).as_micros_f64(),
            mean_bytes: mean(samples.iter().map(|sample| sample.sum).sum(), samples.len()),
            max_bytes: samples.iter().map(|sample| sample.max).max().unwrap_or(0),
        };
        let deepest = |(link, state): (LinkId, &crate::link::Link)| {
            fabric.class(link).pace.bytes(state.max_backlog)
        };
        QueueReport {
            ports: active,
            mean_bytes: mean(self.samples.iter().map(|s| s.sum).sum(), self.samples.len()),
            max_bytes: links().map(deepest).max().unwrap_or(0),
            sampled_max_bytes: self.samples.iter().map(|sample| sample.max).max().unwrap_or(0),
            marked: links().map(|(link, _)| u64::from(fabric.tally(link).marked)).sum(),
            refused: links().map(|(link, _)| u64::from(fabric.tally(link).refused)).sum(),
            series: self.samples.chunks(width).map(point).collect(),
        }
    }
}
