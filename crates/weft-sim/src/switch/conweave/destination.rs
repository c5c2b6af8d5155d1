//! The last leaf: sends replies and holds packets that arrived before the TAIL.

use std::collections::BTreeMap;

use super::Config;
use super::tag::{Header, Mark, Tag};
use crate::packet::{Ecn, Hop};
use crate::switch::flow::{Flow, FlowTable};
use crate::switch::{Command, Decision, Label};
use crate::time::{SimSpan, SimTime};

/// The state of one leaf for the packets that it receives.
#[derive(Debug)]
pub(super) struct Destination {
    flush_slack: SimSpan,
    default_wait: SimSpan,
    flows: FlowTable<Receiving>,
    /// The queues of rerouted flows.
    held: BTreeMap<Flow, Held>,
}

/// The state of a flow that this leaf receives.
#[derive(Debug, Default)]
struct Receiving {
    epoch: SimTime,
    /// `true` once the TAIL of this epoch has arrived or is no longer awaited.
    is_cleared: bool,
    /// The departure time at the first leaf and the arrival time of the latest packet of the old path.
    latest: Option<(SimTime, SimTime)>,
    /// The departure time of the TAIL at the first leaf, once it is known.
    tail_at: SimTime,
}

/// The held packets of a flow.
#[derive(Debug)]
struct Held {
    packets: Vec<Hop>,
    /// The time at which the held packets are released without a TAIL.
    flush_at: SimTime,
    /// The earliest timer that has been requested.
    wake_at: SimTime,
}

impl Destination {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            flush_slack: config.flush_slack.into(),
            default_wait: config.default_wait.into(),
            flows: FlowTable::new(config.aging.into()),
            held: BTreeMap::new(),
        }
    }

    /// Handles a data packet: forwards or holds it.
    pub(super) fn arrive(
        &mut self,
        decision: &Decision<'_>,
        header: &Header,
        commands: &mut Vec<Command>,
    ) {
        let &Decision { now, hop, packets, .. } = decision;
        let flow = Flow::of(hop, packets);
        let (_, receiving) = self.flows.pass(flow, now);
        if header.epoch < receiving.epoch {
            return commands.push(Command::Send(hop));
        }
        let is_new_epoch = header.epoch > receiving.epoch;
        if is_new_epoch {
            *receiving = Receiving { epoch: header.epoch, ..Receiving::default() };
        }
        receiving.record(header, now);
        let flush_at = receiving.expected_tail(now, self.default_wait) + self.flush_slack;
        let overtook = header.is_rerouted && !receiving.is_cleared;
        receiving.is_cleared |= header.mark == Mark::Tail;
        if is_new_epoch {
            // Packets held in an earlier epoch are released first.
            self.release(flow, commands);
        }
        reply(decision, header, commands);
        if overtook {
            return self.hold(flow, decision, flush_at, commands);
        }
        commands.push(Command::Send(hop));
        if header.mark == Mark::Tail {
            self.release(flow, commands);
        } else if let Some(held) = self.held.get_mut(&flow) {
            held.schedule_release(flush_at, flow, now, commands);
        }
    }

    fn hold(
        &mut self,
        flow: Flow,
        decision: &Decision<'_>,
        flush_at: SimTime,
        commands: &mut Vec<Command>,
    ) {
        let never = SimTime::FAR_FUTURE;
        let new = || Held { packets: Vec::new(), flush_at: never, wake_at: never };
        let held = self.held.entry(flow).or_insert_with(new);
        held.packets.push(decision.hop);
        if held.packets.len() == 1 {
            held.schedule_release(flush_at, flow, decision.now, commands);
        }
    }

    fn release(&mut self, flow: Flow, commands: &mut Vec<Command>) {
        if let Some(held) = self.held.remove(&flow) {
            commands.extend(held.packets.into_iter().map(Command::Send));
        }
    }

    /// Handles a requested timer: releases the held packets of a flow if the TAIL is overdue.
    pub(super) fn timer(&mut self, now: SimTime, flow: Flow, commands: &mut Vec<Command>) {
        let Some(held) = self.held.get_mut(&flow) else { return };
        if now < held.wake_at {
            return; // An earlier queue of this flow requested it.
        }
        held.wake_at = SimTime::FAR_FUTURE;
        if now < held.flush_at {
            let flush_at = held.flush_at;
            return held.schedule_release(flush_at, flow, now, commands);
        }
        if let Some(receiving) = self.flows.recall(flow) {
            receiving.is_cleared = true;
        }
        self.release(flow, commands);
    }
}

impl Receiving {
    /// Records the times in a packet's header.
    fn record(&mut self, header: &Header, now: SimTime) {
        if header.is_rerouted || header.mark == Mark::Tail {
            self.tail_at = header.tail_at;
        }
        if !header.is_rerouted {
            self.latest = Some((header.sent_at, now));
        }
    }

    /// Returns the expected arrival of the TAIL: its departure interval after the old path's latest packet, added to
    /// the arrival of that one.
    fn expected_tail(&self, now: SimTime, default_wait: SimSpan) -> SimTime {
        match self.latest {
            Some((sent_at, received_at)) => received_at + self.tail_at.since(sent_at),
            None => now + default_wait,
        }
    }
}

impl Held {
    /// Sets the release time of the held packets, and requests a timer if none is early enough.
    fn schedule_release(
        &mut self,
        at: SimTime,
        flow: Flow,
        now: SimTime,
        commands: &mut Vec<Command>,
    ) {
        self.flush_at = at;
        if at < self.wake_at {
            self.wake_at = at.max(now);
            commands.push(Command::Wake { at: self.wake_at, token: flow.token() });
        }
    }
}

/// Emits the reply and the notification that this packet requires, to its first leaf.
fn reply(decision: &Decision<'_>, header: &Header, commands: &mut Vec<Command>) {
    let hop = decision.hop;
    let slot = decision.packets.get(hop.packet());
    let mut notify = |tag| {
        commands.push(Command::Emit {
            source: hop.destination(),
            destination: slot.source,
            port: slot.source_port,
            label: Label::ConWeave(tag),
        });
    };
    if hop.ecn() == Ecn::CongestionExperienced {
        notify(Tag::Notify { uplink: header.uplink });
    }
    let epoch = header.epoch;
    match header.mark {
        Mark::None => {}
        Mark::Request => notify(Tag::Reply { epoch, is_clear: false }),
        Mark::Tail => notify(Tag::Reply { epoch, is_clear: true }),
    }
}
