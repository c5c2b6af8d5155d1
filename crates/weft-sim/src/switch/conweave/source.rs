//! The first leaf: the choice of a flow's uplink, and the decision to leave it.

use std::collections::BTreeMap;

use weft_topo::LinkId;
use weft_units::{Duration, Rng, Seed};

use super::Config;
use super::tag::{Header, Mark, Tag};
use crate::packet::Integrity;
use crate::switch::Decision;
use crate::switch::flow::{Flow, FlowTable};
use crate::time::{SimSpan, SimTime};

/// The state of one leaf for the packets that it sends.
#[derive(Debug)]
pub(super) struct Source {
    reply_slack: SimSpan,
    path_pause: SimSpan,
    expiry: SimSpan,
    flows: FlowTable<Sending>,
    /// The end of each pause, by leaf and uplink: no flow moves there before.
    paused: BTreeMap<(u32, LinkId), SimTime>,
    rng: Rng,
}

/// The state of a flow that this leaf sends.
#[derive(Debug)]
struct Sending {
    epoch: SimTime,
    /// `None` before the first packet.
    uplink: Option<LinkId>,
    /// `true` once the TAIL of this epoch has been sent.
    is_rerouted: bool,
    tail_at: SimTime,
    /// The deadline of the reply; the far future if none is awaited.
    reply_deadline: SimTime,
    /// `true` if the next packet begins a new epoch on the same path.
    is_replied: bool,
}

impl Default for Sending {
    fn default() -> Self {
        Self {
            epoch: SimTime::EPOCH,
            uplink: None,
            is_rerouted: false,
            tail_at: SimTime::EPOCH,
            reply_deadline: SimTime::FAR_FUTURE,
            is_replied: false,
        }
    }
}

impl Source {
    pub(super) fn new(config: &Config, seed: Seed) -> Self {
        Self {
            reply_slack: config.reply_slack.into(),
            path_pause: config.path_pause.into(),
            expiry: config.expiry.into(),
            flows: FlowTable::new(config.aging.into()),
            paused: BTreeMap::new(),
            rng: seed.rng(),
        }
    }

    /// Returns the header of a host's data packet.
    pub(super) fn send(&mut self, decision: &Decision<'_>) -> Header {
        let &Decision { now, hop, candidates, packets, .. } = decision;
        let (idle, flow) = self.flows.pass(Flow::of(hop, packets), now);
        let known = flow.uplink.filter(|link| candidates.contains(link));
        let starts_over = idle > self.expiry || known.is_none();
        let is_late = flow.reply_deadline < now;
        let mut path = || {
            let leaf = decision.leaf_of(hop.destination());
            // If both draws are paused, the flow stays on its uplink, if it has one.
            draw(&mut self.rng, candidates, |link| {
                self.paused.get(&(leaf, link)).is_none_or(|&until| until <= now)
            })
        };
        if starts_over || flow.is_replied {
            let moved = if starts_over { path() } else { None };
            let uplink =
                moved.or(known).unwrap_or_else(|| candidates[self.rng.index(candidates.len())]);
            let reply_deadline = now + round_trip(decision) + self.reply_slack;
            *flow =
                Sending { epoch: now, uplink: Some(uplink), reply_deadline, ..Sending::default() };
            flow.header(uplink, now, Mark::Request)
        } else if let Some(uplink) = known.filter(|_| is_late) {
            flow.uplink = path().or(known);
            flow.reply_deadline = SimTime::FAR_FUTURE;
            flow.tail_at = now;
            let tail = flow.header(uplink, now, Mark::Tail);
            flow.is_rerouted = true;
            tail
        } else {
            flow.header(known.unwrap_or(candidates[0]), now, Mark::None)
        }
    }

    /// Handles a reply or notification from another leaf about a flow of this one.
    pub(super) fn on_label(&mut self, decision: &Decision<'_>, tag: Tag) {
        let &Decision { now, hop, packets, .. } = decision;
        let slot = packets.get(hop.packet());
        if slot.integrity != Integrity::Sound {
            return;
        }
        match tag {
            Tag::Reply { epoch, is_clear } => {
                let flow = Flow::between(hop.destination(), slot.source, slot.source_port);
                let Some(flow) = self.flows.recall(flow) else { return };
                let is_expected = epoch == flow.epoch && is_clear == flow.is_rerouted;
                if is_expected && (is_clear || now < flow.reply_deadline) {
                    flow.is_replied = true;
                    flow.reply_deadline = SimTime::FAR_FUTURE;
                }
            }
            Tag::Notify { uplink } => {
                let leaf = decision.leaf_of(slot.source);
                self.paused.insert((leaf, uplink), now + self.path_pause);
            }
            Tag::Data(_) => {}
        }
    }
}

impl Sending {
    fn header(&self, uplink: LinkId, now: SimTime, mark: Mark) -> Header {
        let &Self { epoch, is_rerouted, tail_at, .. } = self;
        Header { uplink, epoch, is_rerouted, mark, sent_at: now, tail_at }
    }
}

/// Returns the first of two random uplinks that satisfies `is_good`.
fn draw(rng: &mut Rng, among: &[LinkId], is_good: impl Fn(LinkId) -> bool) -> Option<LinkId> {
    let both = [(); 2].map(|()| among[rng.index(among.len())]);
    both.into_iter().find(|&link| is_good(link))
}

/// Returns the propagation delay from this leaf to the destination's leaf and back.
fn round_trip(decision: &Decision<'_>) -> SimSpan {
    let Decision { topology, routes, hop, .. } = decision;
    let (mut at, mut one_way) = (hop.node(), Duration::ZERO);
    while let Some(&link) = routes.next_links(at, hop.destination()).first() {
        let link = topology.link(link);
        if topology.is_host(link.to) {
            break;
        }
        (at, one_way) = (link.to, one_way + link.propagation);
    }
    (one_way + one_way).into()
}
