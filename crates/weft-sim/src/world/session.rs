//! What workloads ask the network for: channels, messages and time.
//!
//! A workload that hears something at one host may have that host act at once. Another host acts
//! when word could have reached it, one shortest latency later: until then it may have handled what
//! happened to it already. What a workload decides at the start, or woken by [`Session::wake`],
//! every host does at once.

use std::fmt::Debug;

use weft_topo::NodeId;
use weft_transport::{ConnectionId, Endpoint, Message};

use super::Network;
use super::agenda::Item;
use crate::event::{Act, Event};
use crate::nic;
use crate::time::SimTime;
use crate::traffic::{ChannelId, ChannelState, MessageId, Order, Side};

/// What carries a workload's messages: the simulated network, or a real one.
pub trait Stage: Debug {
    /// The time.
    fn now(&self) -> SimTime;
    /// See [`Session::open`].
    fn open(&mut self, workload: u32, from: NodeId, to: NodeId) -> ChannelId;
    /// See [`Session::send`].
    fn send(&mut self, workload: u32, order: Order);
    /// See [`Session::close`].
    fn close(&mut self, channel: ChannelId);
    /// See [`Session::wake`].
    fn wake(&mut self, workload: u32, at: SimTime, token: u64);
    /// See [`Session::wake_at`].
    fn wake_at(&mut self, workload: u32, host: NodeId, at: SimTime, token: u64);
    /// The simulated network, where it is one.
    fn network(&self) -> Option<&Network> {
        None
    }
}

/// What a workload may do.
#[derive(Debug)]
pub struct Session<'a> {
    stage: &'a mut dyn Stage,
    number: u32,
}

impl<'a> Session<'a> {
    /// What the workload with this number may do on `stage`.
    pub fn new(stage: &'a mut dyn Stage, number: u32) -> Self {
        Self { stage, number }
    }

    /// The simulated network, where it is one.
    pub fn network(&self) -> Option<&Network> {
        self.stage.network()
    }

    /// The time.
    pub fn now(&self) -> SimTime {
        self.stage.now()
    }

    /// Opens a channel between two different hosts; messages may be sent on it at once.
    pub fn open(&mut self, from: NodeId, to: NodeId) -> ChannelId {
        self.stage.open(self.number, from, to)
    }

    /// Sends a message.
    pub fn send(&mut self, order: Order) {
        self.stage.send(self.number, order);
    }

    /// Ends a channel; what is still on it may or may not arrive.
    /// [`Notice::Closed`](crate::traffic::Notice::Closed) follows.
    pub fn close(&mut self, channel: ChannelId) {
        self.stage.close(channel);
    }

    /// Asks for [`Notice::Woken`](crate::traffic::Notice::Woken) with `token` at `at`, when every
    /// host is there.
    pub fn wake(&mut self, at: SimTime, token: u64) {
        self.stage.wake(self.number, at, token);
    }

    /// Likewise at a host: what is then decided is for that host. The thing to use where it happens
    /// often, as the others need not come together for it.
    pub fn wake_at(&mut self, host: NodeId, at: SimTime, token: u64) {
        self.stage.wake_at(self.number, host, at, token);
    }
}

impl Stage for Network {
    fn now(&self) -> SimTime {
        self.now
    }

    fn open(&mut self, workload: u32, from: NodeId, to: NodeId) -> ChannelId {
        let channel = self.traffic.add(workload, [from, to]);
        if self.config.has_channels_of_its_own() {
            self.join_stacks(channel, from, to);
        } else if self.config.handshake {
            self.tell(from, channel, Act::Connect);
        } else {
            self.join(channel, from, to);
        }
        channel
    }

    fn send(&mut self, workload: u32, order: Order) {
        let message = self.traffic.begin(order, workload, self.now);
        let channel = self.traffic.channel_mut(order.channel).expect("workloads name their own");
        channel.waiting_mut(order.from).push(message);
        let host = channel.hosts[order.from.index()];
        self.tell(host, order.channel, Act::Submit);
    }

    fn close(&mut self, channel: ChannelId) {
        let opener = self.traffic.channel(channel).map(|channel| channel.hosts[0]);
        if let Some(opener) = opener {
            self.tell(opener, channel, Act::Close);
        }
    }

    fn wake(&mut self, workload: u32, at: SimTime, token: u64) {
        let at = at.max(self.soonest(None));
        self.agenda.add(at, Item::Wake { workload, token });
    }

    fn wake_at(&mut self, workload: u32, host: NodeId, at: SimTime, token: u64) {
        let at = at.max(self.soonest(Some(host)));
        self.events.schedule(at, Event::Wake { host, workload, token });
    }

    fn network(&self) -> Option<&Network> {
        Some(self)
    }
}

impl Network {
    /// When something decided now reaches `host`, or every host.
    fn soonest(&self, host: Option<NodeId>) -> SimTime {
        let at_once = self.here.is_none() || self.here == host;
        if at_once { self.now } else { self.now + self.apart }
    }

    /// Has a host act on a channel, now or when word reaches it.
    fn tell(&mut self, host: NodeId, channel: ChannelId, act: Act) {
        if self.soonest(Some(host)) == self.now && !self.holds_back {
            self.act(host, channel, act);
        } else {
            let at = self.soonest(Some(host));
            self.events.schedule(at, Event::Act { host, channel, act });
        }
    }

    pub(super) fn act(&mut self, host: NodeId, channel: ChannelId, act: Act) {
        match act {
            Act::Connect => self.connect(host, channel),
            Act::Submit => self.submit_waiting(channel, host),
            Act::Close => self.close_at(host, channel),
        }
    }

    /// Makes both ends know a channel, as over another network.
    fn join(&mut self, channel: ChannelId, from: NodeId, to: NodeId) {
        let now = self.now.engine_clock();
        let pair = [from.index(), to.index()];
        let [a, b] = self.hosts.get_disjoint_mut(pair).expect("the ends are different hosts");
        let ends = ((&mut a.endpoint, nic::address(from)), (&mut b.endpoint, nic::address(to)));
        if let Ok((opener, peer)) = Endpoint::join(now, ends.0, ends.1) {
            a.set_channel(opener, channel);
            b.set_channel(peer, channel);
            self.give_ports(from, to, opener);
            self.bind(channel, Side::Opener, opener);
            self.bind(channel, Side::Peer, peer);
            self.set_state(channel, ChannelState::Open);
        }
    }

    fn connect(&mut self, host: NodeId, channel: ChannelId) {
        let Some(peer) = self.traffic.channel(channel).map(|channel| channel.hosts[1]) else {
            return;
        };
        let (now, opener) = (self.now.engine_clock(), &mut self.hosts[host.index()]);
        // A host at its limit is a channel that never opens, as in life.
        if let Ok(connection) = opener.endpoint.connect(now, nic::address(peer), channel.0) {
            opener.set_channel(connection, channel);
            self.bind(channel, Side::Opener, connection);
        }
        self.attend(host);
    }

    pub(super) fn bind(&mut self, channel: ChannelId, side: Side, connection: ConnectionId) {
        if let Some(channel) = self.traffic.channel_mut(channel) {
            channel.connections[side.index()] = Some(connection);
        }
    }

    pub(super) fn set_state(&mut self, channel: ChannelId, state: ChannelState) {
        if let Some(channel) = self.traffic.channel_mut(channel) {
            channel.state = state;
            channel.was_open |= state == ChannelState::Open;
        }
    }

    fn close_at(&mut self, host: NodeId, id: ChannelId) {
        if self.config.has_channels_of_its_own() {
            return self.close_on_stack(host, id);
        }
        let Some(channel) = self.traffic.channel(id) else { return };
        if let Some(connection) = channel.connections[Side::Opener.index()] {
            let now = self.now.engine_clock();
            self.hosts[host.index()].endpoint.close(now, connection);
            self.attend(host);
        }
    }

    /// Gives a host's engine what waits on a channel, as far as it takes it.
    pub(super) fn submit_waiting(&mut self, id: ChannelId, host: NodeId) {
        let Some(channel) = self.traffic.channel_mut(id) else { return };
        let opened = channel.hosts[Side::Opener.index()] == host;
        let side = if opened { Side::Opener } else { Side::Peer };
        let connection = channel.connections[side.index()];
        let known = connection.is_some() || self.config.has_channels_of_its_own();
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
        self.attend(host);
    }

    /// Gives one message to its engine; false where it must wait.
    fn submit(
        &mut self,
        host: NodeId,
        channel: ChannelId,
        connection: Option<ConnectionId>,
        id: MessageId,
    ) -> bool {
        if self.config.has_channels_of_its_own() {
            return self.send_on_stack(host, channel, id);
        }
        let Some(connection) = connection else { return false };
        let Some(record) = self.traffic.message(id) else { return true };
        let message =
            Message { token: id.0.into(), opcode: 0, tag: 0, length: record.order.length };
        let engine = &mut self.hosts[host.index()].endpoint;
        engine.submit(self.now.engine_clock(), connection, message).is_ok()
    }
}
