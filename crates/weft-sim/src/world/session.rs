//! What workloads ask the network for: channels, messages and time.

use weft_topo::NodeId;
use weft_transport::{ConnectionId, Endpoint, Message};

use super::Network;
use crate::event::Event;
use crate::nic;
use crate::time::SimTime;
use crate::traffic::{ChannelId, ChannelState, MessageId, Order, Side};

/// What a workload may do.
#[derive(Debug)]
pub struct Session<'a> {
    /// The network it acts on.
    pub network: &'a mut Network,
    number: u32,
}

impl<'a> Session<'a> {
    pub(super) fn new(network: &'a mut Network, number: u32) -> Self {
        Self { network, number }
    }

    /// The time.
    pub fn now(&self) -> SimTime {
        self.network.now
    }

    /// Opens a channel between two different hosts; messages may be sent on it at once.
    pub fn open(&mut self, from: NodeId, to: NodeId) -> ChannelId {
        self.network.open(self.number, from, to)
    }

    /// Sends a message.
    pub fn send(&mut self, order: Order) {
        self.network.send(self.number, order);
    }

    /// Ends a channel; what is still on it may or may not arrive.
    /// [`Notice::Closed`](crate::traffic::Notice::Closed) follows.
    pub fn close(&mut self, channel: ChannelId) {
        self.network.close(channel);
    }

    /// Asks for [`Notice::Woken`](crate::traffic::Notice::Woken) with `token` at `at`.
    pub fn wake(&mut self, at: SimTime, token: u64) {
        let event = Event::Wake { workload: self.number, token };
        self.network.events.schedule(at, event);
    }
}

impl Network {
    fn open(&mut self, workload: u32, from: NodeId, to: NodeId) -> ChannelId {
        let channel = self.traffic.add(workload, [from, to]);
        let now = self.now.engine_clock();
        if self.config.handshake {
            let peer = nic::address(to);
            let opener = &mut self.hosts[from.index()];
            // A host at its limit is a channel that never opens, as in life.
            if let Ok(connection) = opener.endpoint.connect(now, peer, channel.0) {
                opener.set_channel(connection, channel);
                self.bind(channel, Side::Opener, connection);
            }
            self.attend(from);
            return channel;
        }
        let pair = [from.index(), to.index()];
        let [a, b] = self.hosts.get_disjoint_mut(pair).expect("the ends are different hosts");
        let ends = ((&mut a.endpoint, nic::address(from)), (&mut b.endpoint, nic::address(to)));
        if let Ok((opener, peer)) = Endpoint::join(now, ends.0, ends.1) {
            a.set_channel(opener, channel);
            b.set_channel(peer, channel);
            self.bind(channel, Side::Opener, opener);
            self.bind(channel, Side::Peer, peer);
            self.set_state(channel, ChannelState::Open);
        }
        channel
    }

    pub(super) fn bind(&mut self, channel: ChannelId, side: Side, connection: ConnectionId) {
        if let Some(channel) = self.traffic.channel_mut(channel) {
            channel.connections[side.index()] = Some(connection);
        }
    }

    pub(super) fn set_state(&mut self, channel: ChannelId, state: ChannelState) {
        if let Some(channel) = self.traffic.channel_mut(channel) {
            channel.state = state;
        }
    }

    fn send(&mut self, workload: u32, order: Order) {
        let message = self.traffic.begin(order, workload, self.now);
        let channel = self.traffic.channel_mut(order.channel).expect("workloads name their own");
        channel.waiting.push(message);
        self.submit_waiting(order.channel);
    }

    fn close(&mut self, id: ChannelId) {
        let Some(channel) = self.traffic.channel(id) else { return };
        let (host, connection) = (channel.hosts[0], channel.connections[0]);
        if let Some(connection) = connection {
            let now = self.now.engine_clock();
            self.hosts[host.index()].endpoint.close(now, connection);
            self.attend(host);
        }
    }

    /// Gives the engines what waits on a channel, as far as they take it.
    pub(super) fn submit_waiting(&mut self, id: ChannelId) {
        let Some(channel) = self.traffic.channel_mut(id) else { return };
        if channel.waiting.is_empty() {
            return;
        }
        let waiting = std::mem::take(&mut channel.waiting);
        let (hosts, connections) = (channel.hosts, channel.connections);
        let mut refused = Vec::new();
        for message in waiting {
            if !self.submit(hosts, connections, message) {
                refused.push(message);
            }
        }
        if let Some(channel) = self.traffic.channel_mut(id) {
            channel.waiting = refused;
        }
        hosts.into_iter().for_each(|host| self.attend(host));
    }

    /// Gives one message to its engine; false where it must wait.
    fn submit(
        &mut self,
        hosts: [NodeId; 2],
        connections: [Option<ConnectionId>; 2],
        id: MessageId,
    ) -> bool {
        let Some(record) = self.traffic.message(id) else { return true };
        let side = record.order.from.index();
        let message = Message { token: id.0.into(), opcode: 0, length: record.order.length };
        let Some(connection) = connections[side] else { return false };
        let engine = &mut self.hosts[hosts[side].index()].endpoint;
        engine.submit(self.now.engine_clock(), connection, message).is_ok()
    }
}
