//! One part of the world: its nodes' network, and the mail of other parts.

use weft_topo::NodeId;
use weft_transport::Event as EngineEvent;

use super::super::Network;
use super::super::beginning::{Beginning, Submission};
use super::super::global_events::GlobalEvents;
use super::super::prefetch::Lookahead;
use super::partition::Partition;
use super::{Whole, boxes, lock};
use crate::event::{Event, Mailbox, SuspendedTurn};
use crate::host::Hosts;
use crate::time::SimTime;
use crate::traffic::Traffic;

/// A part of the world. The nodes of its network are its own; the network has no traffic and no global events but
/// those that [`Network::exchange_globals`] lends it.
#[derive(Debug)]
pub(super) struct Part {
    /// Its place in the order of parts.
    pub(super) number: usize,
    pub(super) network: Network,
    /// The events for each part.
    pub(super) outbox: Vec<Mailbox>,
    /// The events from each part.
    pub(super) inbox: Vec<Mailbox>,
    /// The work of the whole world when it is this part's turn, in order.
    pub(super) left: Vec<Left>,
    /// `true` if workloads only take note of deliveries and of the ends of channels.
    takes_notes: bool,
    /// The messages that are submitted when the run begins; `None` once it has.
    pub(super) put_off: Option<Vec<Submission>>,
    /// The messages among them that engines refused.
    pub(super) refused: Vec<Submission>,
}

/// An event that is left for the whole world.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) host: NodeId,
    pub(super) at: SimTime,
    pub(super) cause: Cause,
    /// The host's turn, which continues afterwards; `None` if the event changes nothing at the host, whose turn has gone on.
    pub(super) turn: Option<SuspendedTurn>,
}

/// The event that concerns the whole world.
#[derive(Debug)]
pub(super) enum Cause {
    /// A workload's decision reaches the host.
    Host(Event),
    /// The host's engine has an event for the messages' records and the workloads.
    Engine(EngineEvent),
}

impl Network {
    /// Returns the network of a part, without hosts; `None` if the fabric cannot be divided.
    fn part(&mut self, number: usize, partition: &Partition) -> Option<Self> {
        let is_own = |node: u32| usize::from(partition.part_of[node as usize]) == number;
        Some(Self {
            now: self.now,
            fabric: self.fabric.part(&partition.shares[number])?,
            hosts: Hosts::default(),
            traffic: Traffic::default(),
            contradictions: Vec::new(),
            observer: None,
            reordering: None,
            record: None,
            capture: None,
            events_handled: 0,
            events: self.events.part(is_own),
            config: self.config.clone(),
            global_events: GlobalEvents::default(),
            steering: None,
            route_error: None,
            fast_forward: None,
            notices: std::collections::VecDeque::new(),
            current_host: None,
            max_skew: self.max_skew,
            only_forwards: self.only_forwards,
            holds_packets: false,
            beginning: Beginning::default(),
            takes_note: false,
            defers_engine_events: false,
            deferred: None,
            lookahead: Lookahead::default(),
        })
    }

    /// Exchanges what the whole world shares with another network.
    pub(super) fn exchange_globals(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.traffic, &mut other.traffic);
        std::mem::swap(&mut self.contradictions, &mut other.contradictions);
        std::mem::swap(&mut self.notices, &mut other.notices);
        std::mem::swap(&mut self.global_events, &mut other.global_events);
    }
}

impl Part {
    /// Returns a part of `whole`, without hosts; `None` if the fabric cannot be divided. With `takes_notes`, workloads only
    /// take note of deliveries and of the ends of channels.
    pub(super) fn new(
        whole: &mut Network,
        number: usize,
        partition: &Partition,
        takes_notes: bool,
    ) -> Option<Self> {
        Some(Self {
            number,
            network: whole.part(number, partition)?,
            outbox: boxes(partition.count()),
            inbox: boxes(partition.count()),
            left: Vec::new(),
            takes_notes,
            put_off: Some(Vec::new()),
            refused: Vec::new(),
        })
    }

    /// Returns the first window in which it has events.
    pub(super) fn next_window(&self) -> Option<u64> {
        let earliest = self.inbox.iter().filter_map(Mailbox::earliest).min();
        self.network.events.next_window_with(earliest)
    }

    /// Does the part's work of a round: submits the messages that were put off until the run begins, then serves a
    /// window in each.
    pub(super) fn work(&mut self, whole: &Whole<'_>) {
        match self.put_off.take() {
            Some(list) => self.refused = self.network.submit_each(&list),
            None => self.serve(whole),
        }
        self.send_mail(&whole.partition.part_of);
    }

    /// Serves the part's nodes in the windows to which its events were advanced. What its hosts leave for the
    /// whole world is done when that of all parts before it has been: at once after its hosts, or after its switches,
    /// which no host's turn affects in these windows.
    fn serve(&mut self, whole: &Whole<'_>) {
        self.receive_mail();
        self.network.events.collect_nodes();
        self.serve_hosts();
        let is_first = whole.gate.is_turn_of(self.number);
        if is_first {
            self.finish_turns(whole);
        }
        self.serve_switches();
        if !is_first {
            whole.gate.wait_for_turn(self.number);
            self.finish_turns(whole);
        }
    }

    /// Serves the hosts, each until an event concerns the whole world. Hosts come before switches.
    fn serve_hosts(&mut self) {
        self.network.defers_engine_events = true;
        let is_large = self.network.is_large();
        while let Some((_, next)) = self.network.events.upcoming(0)
            && self.network.fabric.is_host(next)
            && let Some(host) = self.network.events.next_node()
        {
            if is_large {
                self.network.prefetch();
            }
            self.serve_host(host);
        }
        self.network.defers_engine_events = false;
    }

    fn serve_switches(&mut self) {
        let is_large = self.network.is_large();
        while let Some(switch) = self.network.events.next_node() {
            if is_large {
                self.network.prefetch();
            }
            self.network.serve_switch(switch);
        }
    }

    /// Finishes the turns of hosts that wait for the whole world, and passes it on to the next part.
    fn finish_turns(&mut self, whole: &Whole<'_>) {
        if !self.left.is_empty() {
            lock(&whole.world).finish_turns(&mut self.network, &mut self.left);
        }
        whole.gate.pass_turn(self.number);
    }

    /// Schedules the events from other parts.
    pub(super) fn receive_mail(&mut self) {
        let Self { network, inbox, .. } = self;
        network.fabric.packets.follow();
        inbox.iter_mut().for_each(|mail| network.receive_mail(mail));
    }

    /// Puts the events for other parts into their mailboxes.
    fn send_mail(&mut self, part_of: &[u16]) {
        let Self { network, outbox, .. } = self;
        network.events.send_mail(part_of, outbox);
    }

    /// Serves a host until an event concerns it and the whole world.
    fn serve_host(&mut self, host: NodeId) {
        self.network.current_host = Some(host);
        while let Some((at, event)) = self.network.events.pop() {
            self.network.now = at;
            self.network.events_handled += 1;
            let cause = match event {
                Event::Wake { .. } | Event::Act { .. } => Some(Cause::Host(event)),
                _ => {
                    self.network.handle(event);
                    self.take_notes(host, at).map(Cause::Engine)
                }
            };
            if let Some(cause) = cause {
                let turn = Some(self.network.events.suspend());
                self.left.push(Left { host, at, cause, turn });
                break;
            }
        }
        self.network.current_host = None;
    }

    /// Leaves the events of a host's engine for the whole world that change nothing at the host; returns the first one
    /// that may.
    fn take_notes(&mut self, host: NodeId, at: SimTime) -> Option<EngineEvent> {
        while let Some(event) = self.network.deferred.take() {
            let is_note = match event {
                EngineEvent::Connected { .. }
                | EngineEvent::Accepted { .. }
                | EngineEvent::Acked { .. } => false,
                EngineEvent::Delivered { .. } | EngineEvent::Closed { .. } => self.takes_notes,
                _ => true,
            };
            if !is_note {
                return Some(event);
            }
            self.left.push(Left { host, at, cause: Cause::Engine(event), turn: None });
            self.network.service(host);
        }
        None
    }
}
