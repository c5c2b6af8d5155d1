//! The recent results of a probed path.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_units::{Duration, Instant};

use super::RoundTrip;
use crate::fabric::{Fabric, LinkId};
use crate::flow::Flow;

/// The results of a path in one report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    /// The time at which the report arrived.
    pub(super) at: Instant,
    pub(super) sent: u32,
    pub(super) lost: u32,
    pub(super) round_trip: Option<RoundTrip>,
}

/// A path of probes.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// The links that probes cross and those that their answers cross; none if either does not arrive.
    links: Vec<LinkId>,
    /// The recent reports, the newest last.
    recent: VecDeque<Interval>,
    /// The lowest round-trip time on these links, in nanoseconds.
    floor: Option<u64>,
    last: Instant,
}

/// The results of a path in the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured<'a> {
    /// A number of the host that reported them.
    pub(super) source: usize,
    pub(super) links: &'a [LinkId],
    pub(super) sent: u64,
    pub(super) lost: u64,
    /// The median round-trip time less the lowest, in nanoseconds.
    pub(super) delay: Option<u64>,
}

/// Maximum number of reports that are kept for a path.
const MAX_INTERVALS: usize = 64;

impl Record {
    pub(super) fn new(flow: &Flow, fabric: &Fabric, now: Instant) -> Self {
        let (links, recent) = (links(fabric, flow), VecDeque::new());
        Self { links, recent, floor: None, last: now }
    }

    /// Follows the path through the present tables. If it has changed, the results are discarded.
    pub(super) fn follow(&mut self, flow: &Flow, fabric: &Fabric) {
        let present = Self::new(flow, fabric, self.last);
        if present.links != self.links {
            *self = present;
        }
    }

    pub(super) fn add(&mut self, interval: Interval) {
        let lowest = interval.round_trip.map(|it| it.min_ns);
        self.floor = self.floor.into_iter().chain(lowest).min();
        self.last = interval.at;
        self.recent.push_back(interval);
        if self.recent.len() > MAX_INTERVALS {
            self.recent.pop_front();
        }
    }

    /// Discards results that are as old as the window.
    pub(super) fn expire(&mut self, window: Duration, now: Instant) {
        self.recent.retain(|it| now.since(it.at) < window);
    }

    /// Returns the time since the last report.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.since(self.last)
    }

    /// Returns the results in the window; none if the path does not arrive.
    pub(super) fn measured(&self, source: usize) -> Option<Measured<'_>> {
        let (links, recent) = (self.links.as_slice(), self.recent.iter());
        let (sent, lost) = recent.clone().fold((0, 0), |(sent, lost), it| {
            (sent + u64::from(it.sent), lost + u64::from(it.lost))
        });
        let medians = recent.filter_map(|it| Some(it.round_trip?.median_ns));
        let delay = median(medians).zip(self.floor);
        let delay = delay.map(|(median, floor)| median.saturating_sub(floor));
        (!links.is_empty()).then_some(Measured { source, links, sent, lost, delay })
    }
}

/// Returns the links of a probe and of its answer; none if one of them does not arrive.
fn links(fabric: &Fabric, flow: &Flow) -> Vec<LinkId> {
    let (source_port, port) = flow.ports();
    let (from, to) = (SocketAddr::new(flow.src(), source_port), SocketAddr::new(flow.dst(), port));
    let back = Flow::new(to, from, flow.protocol()).map(|flow| fabric.path(&flow));
    let out = fabric.path(flow);
    match back.filter(|back| out.arrives() && back.arrives()) {
        Some(back) => [out.links(), back.links()].concat(),
        None => Vec::new(),
    }
}

/// Returns the lower median of some values.
pub(super) fn median(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied()
}
