//! One part of the world: its nodes' network, and the mail of other parts.

use weft_topo::NodeId;
use weft_transport::Event as EngineEvent;

use super::super::global_events::GlobalEvents;
use super::super::prefetch::Lookahead;
use super::super::{NEARBY_HOSTS, Network};
use super::boxes;
use super::partition::Partition;
use crate::event::{Event, Mailbox, SuspendedTurn};
use crate::host::Hosts;
use crate::time::SimTime;
use crate::traffic::Traffic;

/// A part of the world. The nodes of its network are its own; the network has no traffic and no global events but
/// those that [`Network::exchange_globals`] lends it.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) network: Network,
    /// The events for each part.
    pub(super) outbox: Vec<Mailbox>,
    /// The events from each part.
    pub(super) inbox: Vec<Mailbox>,
    /// The hosts whose turns the whole world must finish, in order.
    pub(super) suspended: Vec<Suspended>,
}

/// A host whose turn continues when every part has served its window.
#[derive(Debug)]
pub(super) struct Suspended {
    pub(super) host: NodeId,
    pub(super) at: SimTime,
    pub(super) cause: Cause,
    pub(super) turn: SuspendedTurn,
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
    /// Returns a part of `whole`, without hosts; `None` if the fabric cannot be divided.
    pub(super) fn new(whole: &mut Network, number: usize, partition: &Partition) -> Option<Self> {
        Some(Self {
            network: whole.part(number, partition)?,
            outbox: boxes(partition.count()),
            inbox: boxes(partition.count()),
            suspended: Vec::new(),
        })
    }

    /// Returns the first window in which it has events.
    pub(super) fn next_window(&self) -> Option<u64> {
        let earliest = self.inbox.iter().filter_map(Mailbox::earliest).min();
        self.network.events.next_window_with(earliest)
    }

    /// Serves the part's nodes in the windows to which its events were advanced.
    pub(super) fn serve(&mut self, part_of: &[u16]) {
        self.receive_mail();
        let network = &mut self.network;
        network.events.collect_nodes();
        network.defers_engine_events = true;
        let is_large = network.fabric.topology.hosts() as usize > NEARBY_HOSTS;
        while let Some(node) = self.network.events.next_node() {
            if is_large {
                self.network.prefetch();
            }
            if self.network.fabric.is_host(node) {
                self.serve_host(node);
            } else {
                self.network.serve_switch(node);
            }
        }
        self.network.defers_engine_events = false;
        self.send_mail(part_of);
    }

    /// Schedules the events from other parts.
    pub(super) fn receive_mail(&mut self) {
        let Self { network, inbox, .. } = self;
        network.fabric.packets.follow();
        inbox.iter_mut().for_each(|mail| network.receive_mail(mail));
    }

    /// Puts the events for other parts into their mailboxes.
    pub(super) fn send_mail(&mut self, part_of: &[u16]) {
        let Self { network, outbox, .. } = self;
        network.events.send_mail(part_of, outbox);
    }

    /// Serves a host until an event concerns the whole world.
    fn serve_host(&mut self, host: NodeId) {
        let network = &mut self.network;
        network.current_host = Some(host);
        while let Some((at, event)) = network.events.pop() {
            network.now = at;
            network.events_handled += 1;
            let cause = match event {
                Event::Wake { .. } | Event::Act { .. } => Some(Cause::Host(event)),
                _ => {
                    network.handle(event);
                    network.deferred.take().map(Cause::Engine)
                }
            };
            if let Some(cause) = cause {
                let turn = network.events.suspend();
                self.suspended.push(Suspended { host, at, cause, turn });
                break;
            }
        }
        network.current_host = None;
    }
}
