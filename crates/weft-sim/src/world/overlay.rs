//! Hosts whose channels are flows between tenants ([`Vtep`]): the handling of packets and deadlines. Everything else
//! is as for plain transports (`packets.rs`).

use weft_topo::NodeId;
use weft_transport::Arrival;

use super::Network;
use crate::overlay::{Vtep, VtepEvent};
use crate::packet::{Hop, PacketSlot};
use crate::stack::Stack;
use crate::traffic::{ChannelId, ChannelState, Contradiction, MessageId, Notice, Side};

impl Network {
    /// Sets up a channel at both ends' switches and tenants.
    pub(super) fn join_vteps(&mut self, channel: ChannelId, from: NodeId, to: NodeId) {
        let pair = [from.index(), to.index()];
        let [a, b] = self.hosts.get_pair_mut(pair).expect("the ends are different hosts");
        let ends = a.stack.as_deref_mut().zip(b.stack.as_deref_mut());
        let ends = ends.and_then(|(a, b)| a.vtep_mut().zip(b.vtep_mut()));
        let (opener, peer) = ends.expect("all hosts have one");
        Vtep::join(channel, opener, peer);
        self.set_state(channel, ChannelState::Open);
    }

    /// Appends a message to its flow, which always accepts it; returns `true`.
    pub(super) fn send_on_flow(&mut self, host: NodeId, channel: ChannelId, id: MessageId) -> bool {
        if let Some(record) = self.traffic.message(id) {
            let length = record.request.length;
            self.vtep(host).send(channel, id, length);
        }
        true
    }

    /// Closes a flow at both ends.
    pub(super) fn close_flow(&mut self, id: ChannelId) {
        let Some(hosts) = self.traffic.channel(id).map(|channel| channel.hosts) else { return };
        hosts.into_iter().for_each(|host| self.vtep(host).close(id));
        self.end(id, None);
    }

    /// Handles a packet's arrival at an overlay's host.
    pub(super) fn arrive_at_vtep(&mut self, hop: Hop, arrival: &Arrival) {
        let now = self.now.engine_clock();
        let (host, fabric) = (&mut self.hosts[hop.node().index()], &mut self.fabric);
        let vtep = host.stack.as_deref_mut().and_then(Stack::vtep_mut).expect("the caller's");
        let packet = fabric.packets.get(hop.packet()).packet;
        vtep.handle_packet(now, arrival, &packet, fabric.payloads.of(hop.packet()));
        fabric.packets.remove(hop.packet());
        self.service_vtep(hop.node());
    }

    /// Services an overlay's host after any event: runs its turn, handles its tenants' events, and sends.
    pub(super) fn service_vtep(&mut self, node: NodeId) {
        let now = self.now.engine_clock();
        self.vtep(node).take_turn(now);
        while let Some(event) = self.vtep(node).poll_event() {
            self.on_vtep_event(node, event);
        }
        if !self.hosts[node.index()].pull_scheduled {
            self.pull_from_vtep(node);
        }
        let due = self.vtep(node).poll_timeout();
        self.rearm_stack(node, due);
    }

    fn on_vtep_event(&mut self, node: NodeId, event: VtepEvent) {
        match event {
            VtepEvent::Received { channel, side } => self.deliver_from_flow(node, channel, side),
            VtepEvent::Acked { channel, message } => {
                let completed = self.traffic.complete(channel, message.0.into(), self.now);
                self.notify_workload(completed, |request| Notice::Acknowledged { request });
            }
            VtepEvent::Broken { channel, side, serial } => {
                let broken = Contradiction::Frame { channel, to: side, serial };
                self.contradictions.push(broken);
            }
        }
        let received = self.vtep(node).received_bytes();
        self.hosts[node.index()].received_bytes = received;
    }

    /// Delivers the messages whose last byte has arrived on a flow.
    fn deliver_from_flow(&mut self, node: NodeId, channel: ChannelId, side: Side) {
        while let Some((number, length)) = self.traffic.next_delivery(channel, side)
            && self.vtep(node).take_message(channel, length)
        {
            let delivered = self.traffic.deliver(channel, side, number, length, self.now);
            self.notify_workload(delivered, |request| Notice::Delivered { request });
        }
    }

    /// Takes packets from the switch while the ports have room.
    fn pull_from_vtep(&mut self, node: NodeId) {
        let now = self.now.engine_clock();
        let mut slot = PacketSlot::default();
        loop {
            if let Some(at) = self.full_until(node) {
                return self.wait_for_room(node, at);
            }
            let packet = self.fabric.packets.reserve();
            let (hosts, fabric) = (&mut self.hosts, &mut self.fabric);
            let stack = hosts[node.index()].stack.as_deref_mut();
            let vtep = stack.and_then(Stack::vtep_mut).expect("the caller's");
            let payload = fabric.payloads.of(packet);
            let Some(departure) = vtep.poll_packet(now, &mut slot.packet, payload) else {
                return self.fabric.packets.remove(packet);
            };
            self.put_on_wire(node, packet, &mut slot, &departure);
        }
    }

    fn vtep(&mut self, node: NodeId) -> &mut Vtep {
        let stack = self.hosts[node.index()].stack.as_deref_mut();
        stack.and_then(Stack::vtep_mut).expect("the caller's host has one")
    }
}
