//! The interface of workloads to the network: channels, messages and time.
//!
//! A workload that gets a notice at one host may let that host act at once. Another host acts one lookahead later (two
//! if tiers alternate), when a packet could have reached it: until then it may have handled its events already. A
//! decision at the start, or after [`Session::wake`], reaches every host at once.

use std::fmt::Debug;

use weft_topo::NodeId;
use weft_transport::{ConnectionId, Endpoint, Message};

use super::Network;
use super::global_events::Item;
use crate::event::{Act, Event};
use crate::nic;
use crate::time::SimTime;
use crate::traffic::{ChannelId, ChannelState, MessageId, SendRequest, Side};

/// The carrier of a workload's messages: the simulated network, or a real one.
pub trait Stage: Debug {
    /// Returns the current time.
    fn now(&self) -> SimTime;
    /// See [`Session::open`].
    fn open(&mut self, workload: u32, from: NodeId, to: NodeId) -> ChannelId;
    /// See [`Session::send`].
    fn send(&mut self, workload: u32, request: SendRequest);
    /// See [`Session::close`].
    fn close(&mut self, channel: ChannelId);
    /// See [`Session::wake`].
    fn wake(&mut self, workload: u32, at: SimTime, token: u64);
    /// See [`Session::wake_at`].
    fn wake_at(&mut self, workload: u32, host: NodeId, at: SimTime, token: u64);
    /// See [`Session::consider_skip`].
    fn consider_skip(&mut self) {}
    /// Returns the simulated network, if it is one.
    fn network(&self) -> Option<&Network> {
        None
    }
}

/// A workload's access to the network.
#[derive(Debug)]
pub struct Session<'a> {
    stage: &'a mut dyn Stage,
    number: u32,
}

impl<'a> Session<'a> {
    /// Returns the access to `stage` of the workload with this number.
    pub fn new(stage: &'a mut dyn Stage, number: u32) -> Self {
        Self { stage, number }
    }

    /// Returns the simulated network, if it is one.
    pub fn network(&self) -> Option<&Network> {
        self.stage.network()
    }

    /// Returns the current time.
    pub fn now(&self) -> SimTime {
        self.stage.now()
    }

    /// Announces that a unit of a repeating part is complete, so that fast-forward may skip some; see
    /// [`fast_forward`](crate::fast_forward). Without fast-forward this does nothing.
    pub fn consider_skip(&mut self) {
        self.stage.consider_skip();
    }

    /// Opens a channel between two different hosts; messages may be sent on it at once.
    pub fn open(&mut self, from: NodeId, to: NodeId) -> ChannelId {
        self.stage.open(self.number, from, to)
    }

    /// Sends a message.
    pub fn send(&mut self, request: SendRequest) {
        self.stage.send(self.number, request);
    }

    /// Ends a channel; messages still on it may or may not arrive. [`Notice::Closed`](crate::traffic::Notice::Closed)
    /// follows.
    pub fn close(&mut self, channel: ChannelId) {
        self.stage.close(channel);
    }

    /// Requests [`Notice::Woken`](crate::traffic::Notice::Woken) with `token` at `at`, when every host has reached
    /// that time.
    pub fn wake(&mut self, at: SimTime, token: u64) {
        self.stage.wake(self.number, at, token);
    }

    /// Requests a wake-up at one host: decisions made then are for that host. It is cheaper than [`Self::wake`] for
    /// frequent use, as the other hosts need not have reached the time.
    pub fn wake_at(&mut self, host: NodeId, at: SimTime, token: u64) {
        self.stage.wake_at(self.number, host, at, token);
    }
}

impl Stage for Network {
    fn now(&self) -> SimTime {
        self.world_now()
    }

    fn open(&mut self, workload: u32, from: NodeId, to: NodeId) -> ChannelId {
        self.submit_put_off();
        let channel = self.traffic.add(workload, [from, to]);
        if self.config.stack_has_channels() {
            self.join_stacks(channel, from, to);
        } else if self.config.handshake {
            self.notify_host(from, channel, Act::Connect);
        } else {
            self.join(channel, from, to);
        }
        channel
    }

    fn send(&mut self, workload: u32, request: SendRequest) {
        let message = self.traffic.begin(request, workload, self.now);
        if self.put_off(request, message) {
            return;
        }
        self.submit_put_off();
        let channel = self.traffic.channel_mut(request.channel).expect("workloads name their own");
        channel.waiting_mut(request.from).push(message);
        let host = channel.hosts[request.from.index()];
        self.notify_host(host, request.channel, Act::Submit);
    }

    fn close(&mut self, channel: ChannelId) {
        self.submit_put_off();
        let opener = self.traffic.channel(channel).map(|channel| channel.hosts[0]);
        if let Some(opener) = opener {
            self.notify_host(opener, channel, Act::Close);
        }
    }

    fn wake(&mut self, workload: u32, at: SimTime, token: u64) {
        let at = self.network_time(at).max(self.earliest_effect(None));
        self.global_events.add(at, Item::Wake { workload, token });
    }

    fn wake_at(&mut self, workload: u32, host: NodeId, at: SimTime, token: u64) {
        let at = self.network_time(at).max(self.earliest_effect(Some(host)));
        self.events.schedule(at, Event::Wake { host, workload, token });
    }

    fn consider_skip(&mut self) {
        self.request_skip();
    }

    fn network(&self) -> Option<&Network> {
        Some(self)
    }
}

impl Network {
    /// Returns the time at which a decision made now reaches `host`, or every host.
    fn earliest_effect(&self, host: Option<NodeId>) -> SimTime {
        let at_once = self.current_host.is_none() || self.current_host == host;
        if at_once { self.now } else { self.now + self.max_skew }
    }

    /// Lets a host act on a channel as soon as a decision can reach it: now, or at most two lookaheads later.
    fn notify_host(&mut self, host: NodeId, channel: ChannelId, act: Act) {
        debug_assert!(!self.takes_note, "a workload acts where it only takes note");
        if self.earliest_effect(Some(host)) == self.now && !self.holds_packets {
            self.act(host, channel, act);
        } else {
            let at = self.earliest_effect(Some(host));
            self.events.schedule(at, Event::Act { host, channel, act });
        }
    }

    /// Executes a host's action on a channel.
    pub(super) fn act(&mut self, host: NodeId, channel: ChannelId, act: Act) {
        match act {
            Act::Connect => self.connect(host, channel),
            Act::Submit => self.submit_waiting(channel, host),
            Act::Close => self.close_at(host, channel),
        }
    }

    /// Sets up a channel at both ends without packets.
    fn join(&mut self, channel: ChannelId, from: NodeId, to: NodeId) {
        let now = self.now.engine_clock();
        let pair = [from.index(), to.index()];
        let [a, b] = self.hosts.get_pair_mut(pair).expect("the ends are different hosts");
        let ends = ((&mut a.endpoint, nic::address(from)), (&mut b.endpoint, nic::address(to)));
        if let Ok((opener, peer)) = Endpoint::join(now, ends.0, ends.1) {
            a.set_channel(opener, channel);
            b.set_channel(peer, channel);
            self.assign_distinct_ports(from, to, opener);
            self.bind(channel, Side::Opener, opener);
            self.bind(channel, Side::Peer, peer);
            self.set_state(channel, ChannelState::Open);
        }
    }

    /// Starts the handshake of a channel at its opener.
    fn connect(&mut self, host: NodeId, channel: ChannelId) {
        let Some(peer) = self.traffic.channel(channel).map(|channel| channel.hosts[1]) else {
            return;
        };
        let (now, opener) = (self.now.engine_clock(), &mut self.hosts[host.index()]);
        // A host at its limit of connections never opens the channel, like a real one.
        if let Ok(connection) = opener.endpoint.connect(now, nic::address(peer), channel.0.into()) {
            opener.set_channel(connection, channel);
            self.bind(channel, Side::Opener, connection);
        }
        self.service(host);
    }

    /// Records the connection id of one end of a channel.
    pub(super) fn bind(&mut self, channel: ChannelId, side: Side, connection: ConnectionId) {
        if let Some(channel) = self.traffic.channel_mut(channel) {
            channel.connections[side.index()] = Some(connection);
        }
    }

    /// Sets a channel's state.
    pub(super) fn set_state(&mut self, channel: ChannelId, state: ChannelState) {
        if let Some(channel) = self.traffic.channel_mut(channel) {
            channel.state = state;
            channel.was_open |= state == ChannelState::Open;
        }
    }

    /// Closes a channel at its opener.
    fn close_at(&mut self, host: NodeId, id: ChannelId) {
        if self.config.stack_has_channels() {
            return self.close_on_stack(host, id);
        }
        let Some(channel) = self.traffic.channel(id) else { return };
        if let Some(connection) = channel.connections[Side::Opener.index()] {
            let now = self.now.engine_clock();
            self.hosts[host.index()].endpoint.close(now, connection);
            self.service(host);
        }
    }

    /// Submits a channel's waiting messages to a host's engine until it accepts no more.
    pub(super) fn submit_waiting(&mut self, id: ChannelId, host: NodeId) {
        let Some(channel) = self.traffic.channel_mut(id) else { return };
        let opened = channel.hosts[Side::Opener.index()] == host;
        let side = if opened { Side::Opener } else { Side::Peer };
        let connection = channel.connections[side.index()];
        let known = connection.is_some() || self.config.stack_has_channels();
        if !known || channel.waiting(side).is_empty() {
            return;
        }
        let waiting = std::mem::take(channel.waiting_mut(side));
        let mut refused = Vec::new();
        for message in waiting {
            if !self.submit(host, id, connection, message) {
                refused.push(message);
            }
        }
        if let Some(channel) = self.traffic.channel_mut(id) {
            *channel.waiting_mut(side) = refused;
        }
        self.service(host);
    }

    /// Submits one message to its engine; returns `false` if it must wait.
    fn submit(
        &mut self,
        host: NodeId,
        channel: ChannelId,
        connection: Option<ConnectionId>,
        id: MessageId,
    ) -> bool {
        if self.config.stack_has_channels() {
            return self.send_on_stack(host, channel, id);
        }
        let Some(connection) = connection else { return false };
        let Some(record) = self.traffic.message(id) else { return true };
        let message =
            Message { token: id.0.into(), opcode: 0, tag: 0, length: record.request.length };
        let engine = &mut self.hosts[host.index()].endpoint;
        engine.submit(self.now.engine_clock(), connection, message).is_ok()
    }
}
