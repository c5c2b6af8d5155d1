//! Hosts whose channels are X-RDMA's ([`Messenger`]): the handling of packets and deadlines. Everything else is as for
//! plain transports (`packets.rs`).

use weft_rnic::{Arrival, Transmit};
use weft_topo::NodeId;
use weft_transport::{Departure, Payload};
use weft_units::Duration;

use super::Network;
use crate::messenger::{Messenger, MessengerEvent};
use crate::packet::{Hop, PacketSlot};
use crate::payload::PacketPayload;
use crate::stack::Stack;
use crate::traffic::{ChannelId, ChannelState, MessageId, Notice};

impl Network {
    /// Sets up a channel at both ends without packets.
    pub(super) fn join_messengers(&mut self, channel: ChannelId, from: NodeId, to: NodeId) {
        let now = self.now.engine_clock();
        let pair = [from.index(), to.index()];
        let [a, b] = self.hosts.get_pair_mut(pair).expect("the ends are different hosts");
        let ends = a.stack.as_deref_mut().zip(b.stack.as_deref_mut());
        let ends = ends.and_then(|(a, b)| a.messenger_mut().zip(b.messenger_mut()));
        let (opener, peer) = ends.expect("all hosts have one");
        if Messenger::join(now, channel, opener, peer) {
            self.set_state(channel, ChannelState::Open);
        }
    }

    /// Submits a message to its host's context; returns `false` if it must wait.
    pub(super) fn send_message(&mut self, host: NodeId, channel: ChannelId, id: MessageId) -> bool {
        let Some(record) = self.traffic.message(id) else { return true };
        let length = record.request.length;
        let now = self.now.engine_clock();
        self.messenger(host).send(now, channel, id, length)
    }

    /// Handles a packet's arrival at a host with a context.
    #[inline(never)]
    pub(super) fn arrive_at_messenger(&mut self, hop: Hop, arrival: &Arrival) {
        let now = self.now.engine_clock();
        let (host, fabric) = (&mut self.hosts[hop.node().index()], &mut self.fabric);
        let messenger = host.stack.as_deref_mut().and_then(Stack::messenger_mut);
        let messenger = messenger.expect("checked by the caller");
        let rnic = messenger.context.verbs_mut();
        let packet = fabric.packets.get(hop.packet()).packet;
        let payload = fabric.payloads.of(hop.packet());
        // A packet with undetected damage may announce a header that it was sent without.
        let rdma = payload.rdma.as_ref().filter(|_| packet.announces_rdma());
        let before = rnic.received_bytes();
        rnic.handle_packet(now, arrival, &packet, rdma, &payload.bytes);
        host.received_bytes += rnic.received_bytes() - before;
        fabric.packets.remove(hop.packet());
        self.service_messenger(hop.node());
    }

    /// Handles a deadline of a host's context or device.
    pub(super) fn messenger_deadline(&mut self, node: NodeId) {
        let now = self.now.engine_clock();
        self.messenger(node).context.verbs_mut().handle_timeout(now);
        self.service_messenger(node);
    }

    /// Services a host with a context after any event: polls it, handles its events, and sends.
    #[inline(never)]
    pub(super) fn service_messenger(&mut self, node: NodeId) {
        let now = self.now.engine_clock();
        loop {
            let messenger = self.messenger(node);
            while messenger.context.poll(now) {}
            let Some(event) = messenger.poll_event(now) else { break };
            self.on_messenger_event(node, event);
        }
        // The host is polled at every event, so that no completion waits for it.
        self.messenger(node).context.pause(Duration::ZERO);
        if self.hosts[node.index()].pull_scheduled {
            self.rearm_messenger(node);
        } else {
            self.pull_from_messenger(node);
        }
    }

    fn on_messenger_event(&mut self, node: NodeId, event: MessengerEvent) {
        match event {
            MessengerEvent::Delivered { channel, side, length } => {
                let delivered = self.traffic.deliver_one_of(channel, side, length, self.now);
                self.notify_workload(delivered, |request| Notice::Delivered { request });
            }
            MessengerEvent::Acked { channel, message } => {
                let completed = self.traffic.complete(channel, message.0.into(), self.now);
                self.notify_workload(completed, |request| Notice::Acknowledged { request });
                self.submit_waiting(channel, node);
            }
            MessengerEvent::Closed { channel } => self.end(channel, None),
        }
    }

    /// Takes packets from the device while the ports have room, and sets the deadline.
    pub(super) fn pull_from_messenger(&mut self, node: NodeId) {
        let now = self.now.engine_clock();
        let mut slot = PacketSlot::default();
        loop {
            if let Some(at) = self.full_until(node) {
                self.wait_for_room(node, at);
                break;
            }
            let packet = self.fabric.packets.reserve();
            let (hosts, fabric) = (&mut self.hosts, &mut self.fabric);
            let stack = hosts[node.index()].stack.as_deref_mut();
            let messenger = stack.and_then(Stack::messenger_mut).expect("the caller's");
            let mut departure = None;
            messenger.context.verbs_mut().poll_transmit(now, |transmit, payload| {
                let contents = fabric.payloads.of(packet);
                departure = Some(load(transmit, payload, &mut slot, contents));
            });
            let Some(departure) = departure else {
                self.fabric.packets.remove(packet);
                break;
            };
            self.put_on_wire(node, packet, &mut slot, &departure);
        }
        self.rearm_messenger(node);
    }

    /// Sets the host's deadline to the context's timeout.
    fn rearm_messenger(&mut self, node: NodeId) {
        let due = self.messenger(node).poll_timeout();
        self.rearm_stack(node, due);
    }

    fn messenger(&mut self, node: NodeId) -> &mut Messenger {
        let stack = self.hosts[node.index()].stack.as_deref_mut();
        stack.and_then(Stack::messenger_mut).expect("the caller's host has one")
    }
}

/// Writes a device's packet into a packet slot. For the fabric, everything after the transport's headers is payload.
fn load(
    transmit: &Transmit,
    payload: &[u8],
    slot: &mut PacketSlot,
    contents: &mut PacketPayload,
) -> Departure {
    slot.packet = transmit.packet;
    contents.rdma = transmit.rdma;
    contents.bytes.clear();
    contents.bytes.extend_from_slice(payload);
    let header = transmit.rdma.map_or(0, |rdma| rdma.header_len());
    let len = u16::try_from(header + payload.len()).expect("no longer than a packet");
    let piece = transmit.rdma.map(|_| Payload { token: 0, offset: 0, len });
    Departure {
        to: transmit.to,
        connection: transmit.connection,
        path: transmit.path,
        padding: if piece.is_none() { len } else { 0 },
        payload: piece,
    }
}
