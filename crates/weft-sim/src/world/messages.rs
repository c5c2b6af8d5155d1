//! Hosts whose channels are X-RDMA's ([`Messenger`]): what packets and deadlines mean for them. Everything
//! else about a host is as it is for those that are transports and nothing more (`packets.rs`).

use weft_rnic::{Arrival, Transmit};
use weft_topo::NodeId;
use weft_transport::{Departure, Payload};

use super::Network;
use crate::freight::Freights;
use crate::messenger::{Heard, Messenger};
use crate::packet::{Hop, Parcel, ParcelId};
use crate::stack::Stack;
use crate::traffic::{ChannelId, ChannelState, MessageId, Notice};

impl Network {
    /// Makes both ends know a channel, as over another network.
    pub(super) fn join_messengers(&mut self, channel: ChannelId, from: NodeId, to: NodeId) {
        let now = self.now.engine_clock();
        let pair = [from.index(), to.index()];
        let [a, b] = self.hosts.get_disjoint_mut(pair).expect("the ends are different hosts");
        let ends = a.stack.as_deref_mut().zip(b.stack.as_deref_mut());
        let ends = ends.and_then(|(a, b)| a.messenger_mut().zip(b.messenger_mut()));
        let (opener, peer) = ends.expect("all hosts have one");
        if Messenger::join(now, channel, opener, peer) {
            self.set_state(channel, ChannelState::Open);
        }
    }

    /// Hands a message to its host's context; false where it must wait.
    pub(super) fn send_message(&mut self, host: NodeId, channel: ChannelId, id: MessageId) -> bool {
        let Some(record) = self.traffic.message(id) else { return true };
        let length = record.order.length;
        let now = self.now.engine_clock();
        self.messenger(host).send(now, channel, id, length)
    }

    /// A packet reached a host that has a context.
    #[inline(never)]
    pub(super) fn arrive_at_messenger(&mut self, hop: Hop, arrival: &Arrival) {
        let now = self.now.engine_clock();
        let (host, fabric) = (&mut self.hosts[hop.node().index()], &mut self.fabric);
        let messenger = host.stack.as_deref_mut().and_then(Stack::messenger_mut);
        let messenger = messenger.expect("asked by the caller");
        let rnic = messenger.context.verbs_mut();
        let packet = &fabric.parcels.get(hop.packet()).packet;
        let freight = fabric.freights.of(hop.packet());
        // What was damaged unnoticed may say otherwise than it was sent.
        let rdma = freight.rdma.as_ref().filter(|_| packet.announces_rdma());
        let before = rnic.received_bytes();
        rnic.handle_packet(now, arrival, packet, rdma, &freight.payload);
        host.received_bytes += rnic.received_bytes() - before;
        fabric.parcels.remove(hop.packet());
        self.attend_messenger(hop.node());
    }

    /// A deadline of a host's context or device passed.
    pub(super) fn messenger_deadline(&mut self, node: NodeId) {
        let now = self.now.engine_clock();
        self.messenger(node).context.verbs_mut().handle_timeout(now);
        self.attend_messenger(node);
    }

    /// After anything happened to a host with a context: polls it, hears it out, and sends what may leave.
    #[inline(never)]
    pub(super) fn attend_messenger(&mut self, node: NodeId) {
        let now = self.now.engine_clock();
        loop {
            let messenger = self.messenger(node);
            while messenger.context.poll(now) {}
            let Some(heard) = messenger.poll_event(now) else { break };
            self.hear_messenger(node, heard);
        }
        if self.hosts[node.index()].pull_scheduled {
            self.rearm_messenger(node);
        } else {
            self.pull_from_messenger(node);
        }
    }

    fn hear_messenger(&mut self, node: NodeId, heard: Heard) {
        match heard {
            Heard::Delivered { channel, side, length } => {
                let delivered = self.traffic.deliver_one_of(channel, side, length, self.now);
                self.note(delivered, |order| Notice::Delivered { order });
            }
            Heard::Sent { channel, message } => {
                let completed = self.traffic.complete(channel, message.0.into(), self.now);
                self.note(completed, |order| Notice::Sent { order });
                self.submit_waiting(channel, node);
            }
            Heard::Closed { channel } => self.end(channel, None),
        }
    }

    /// Takes packets from the device as long as the ports have room, and sees to the deadline.
    pub(super) fn pull_from_messenger(&mut self, node: NodeId) {
        let now = self.now.engine_clock();
        loop {
            if let Some(at) = self.full_until(node) {
                self.wait_for_room(node, at);
                break;
            }
            let packet = self.fabric.parcels.reserve();
            let (hosts, fabric) = (&mut self.hosts, &mut self.fabric);
            let stack = hosts[node.index()].stack.as_deref_mut();
            let messenger = stack.and_then(Stack::messenger_mut).expect("the caller's");
            let mut departure = None;
            messenger.context.verbs_mut().poll_transmit(now, |transmit, payload| {
                let parcel = fabric.parcels.get_mut(packet);
                departure = Some(load(transmit, payload, packet, parcel, &mut fabric.freights));
            });
            let Some(departure) = departure else {
                self.fabric.parcels.remove(packet);
                break;
            };
            self.put_on_wire(node, packet, &departure);
        }
        self.rearm_messenger(node);
    }

    fn rearm_messenger(&mut self, node: NodeId) {
        let due = self.messenger(node).poll_timeout();
        self.rearm_stack(node, due);
    }

    fn messenger(&mut self, node: NodeId) -> &mut Messenger {
        let stack = self.hosts[node.index()].stack.as_deref_mut();
        stack.and_then(Stack::messenger_mut).expect("the caller's host has one")
    }
}

/// Writes what a device sends into a parcel. To the fabric, all that follows the transport's headers is
/// payload.
fn load(
    transmit: &Transmit,
    payload: &[u8],
    packet: ParcelId,
    parcel: &mut Parcel,
    freights: &mut Freights,
) -> Departure {
    parcel.packet = transmit.packet;
    let freight = freights.of(packet);
    freight.rdma = transmit.rdma;
    freight.payload.clear();
    freight.payload.extend_from_slice(payload);
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
