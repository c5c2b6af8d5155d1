//! Hosts whose transport encrypts ([`Seals`]). They send bytes, sealed as shipped: the network sees addresses, ports
//! and lengths, and the receiver opens and parses datagrams with the code of real hosts (`Seals::ingest`). Everything
//! else about a host is as for a plain transport (`packets.rs`).

use std::net::SocketAddr;

use weft_seal::{PacketHandler, Seals};
use weft_topo::NodeId;
use weft_transport::{
    Admission, Arrival, ConnectionId, Departure, Endpoint, Placement, SetupClass, Verdict,
};
use weft_units::{Duration, Instant};
use weft_wire::{Packet, SealedHeader, SetupHeader, SetupKind, U4};

use super::Network;
use crate::datagram::Contents;
use crate::host::Host;
use crate::packet::{Hop, PacketSlot};
use crate::stack::Stack;
use crate::traffic::Side;

/// Returns the packet that the network sees in place of the sealed headers: it only marks whether there is payload. No
/// datagram is shorter than this.
fn placeholder(packet: &Packet) -> Packet {
    match packet {
        Packet::Data(..) => Packet::default(),
        Packet::Ack(_) | Packet::Setup(_) => Packet::Setup(SetupHeader {
            kind: SetupKind::Close,
            version: U4::truncate(0),
            cc_type: U4::truncate(0),
            thread_id: 0,
            reason: 0,
            local_cid: 0,
            destination_cid: 0,
            terms: None,
        }),
    }
}

impl Network {
    /// Handles a datagram's arrival at a host that encrypts.
    pub(super) fn arrive_sealed(&mut self, hop: Hop, arrival: &Arrival) {
        let node = hop.node();
        let mut datagram = self.fabric.datagrams.take(hop.packet());
        self.fabric.packets.remove(hop.packet());
        let opened = self.open(node, &mut datagram, arrival);
        if let Some((placement, payload)) = opened {
            self.place_opened(node, &placement, payload);
        }
        self.service_engine(node);
    }

    /// Opens a datagram and passes the packet to the engine; returns the placement that the engine requests, with its
    /// payload.
    fn open<'a>(
        &mut self,
        node: NodeId,
        datagram: &'a mut [u8],
        arrival: &Arrival,
    ) -> Option<(Placement, &'a [u8])> {
        let now = self.now.engine_clock();
        let (endpoint, seals) = engine_and_seals(&mut self.hosts[node.index()]);
        let sealed = datagram.first() == Some(&SealedHeader::PACKET_TYPE);
        let tag = datagram.last_chunk().copied();
        let mut engine = Engine { endpoint, was_opened: false, placement: None };
        let _ = seals.ingest(&mut engine, now, arrival, datagram);
        let Engine { was_opened, placement, .. } = engine;
        if let (Some(observer), Some(tag), true) = (&mut self.observer, tag, sealed && was_opened) {
            observer.on_opened(node, tag);
        }
        placement
    }

    /// Places an opened payload, and compares it with the bytes that the peer sent.
    fn place_opened(&mut self, node: NodeId, placement: &Placement, payload: &[u8]) {
        let &Placement { connection, psn, message, offset, .. } = placement;
        let host = &mut self.hosts[node.index()];
        host.received_bytes += u64::from(placement.len);
        let channel = host.channel(connection);
        let sender = channel.and_then(|id| Some((id, self.traffic.channel(id)?.hosts)));
        let is_genuine = sender.is_some_and(|(id, hosts)| {
            let from = if hosts[Side::Opener.index()] == node { Side::Peer } else { Side::Opener };
            Contents::new(id, from, message).are(offset, payload)
        });
        if let Some(observer) = &mut self.observer {
            observer.on_place(node, placement);
            observer.on_payload_read(node, placement, is_genuine);
        }
        if let Some(reordering) = &mut self.reordering {
            reordering.on_place(node, placement);
        }
        if self.config.place_delay > Duration::ZERO || self.config.pcie.is_some() {
            return self.place_later(node, placement);
        }
        if let Some(observer) = &mut self.observer {
            observer.on_placed(node, connection, psn);
        }
        let now = self.now.engine_clock();
        let placed = self.hosts[node.index()].endpoint.placed(now, connection, psn);
        placed.expect("the engine requested it just now");
    }

    /// Handles a deadline of an engine that encrypts.
    pub(super) fn sealed_deadline(&mut self, node: NodeId) {
        let now = self.now.engine_clock();
        self.hosts[node.index()].endpoint.handle_timeout(now);
        self.service_engine(node);
    }

    /// Takes packets from the engine while the ports have room, and sets its deadline.
    pub(super) fn pull_sealed(&mut self, node: NodeId) {
        let now = self.now.engine_clock();
        if self.config.fabric.port.control_first {
            self.pull_control_sealed(node);
        }
        loop {
            if let Some(at) = self.full_until(node) {
                self.wait_for_room(node, at);
                break;
            }
            let mut packet = Packet::default();
            let engine = &mut self.hosts[node.index()].endpoint;
            let Some(departure) = engine.poll_transmit_into(now, &mut packet) else { break };
            self.seal(node, &packet, &departure);
        }
        self.forget_keys(node);
        self.rearm(node);
    }

    /// Takes packets without payload, whatever the ports hold.
    #[cold]
    pub(super) fn pull_control_sealed(&mut self, node: NodeId) {
        let now = self.now.engine_clock();
        let mut packet = Packet::default();
        while let Some(departure) =
            self.hosts[node.index()].endpoint.poll_control_into(now, &mut packet)
        {
            self.seal(node, &packet, &departure);
        }
        self.forget_keys(node);
    }

    /// Seals a departing packet as a datagram, and puts it on the wire.
    fn seal(&mut self, node: NodeId, packet: &Packet, departure: &Departure) {
        let id = self.fabric.packets.reserve();
        let contents = self.contents(node, packet, departure);
        let (_, seals) = engine_and_seals(&mut self.hosts[node.index()]);
        seals.handle_timeout(self.now.engine_clock());
        let wrap = seals.wrap(&departure.to, departure.connection, packet);
        let datagram = self.fabric.datagrams.of(id);
        let len = packet.len() + usize::from(departure.payload_len()) + wrap.len();
        datagram.clear();
        datagram.resize(len, 0);
        let inside = &mut datagram[wrap.inside(0, len)];
        let headers = packet.emit(inside);
        if let Some((contents, offset)) = contents {
            contents.read(offset, &mut inside[headers..]);
        }
        seals.seal(wrap, 0, datagram);
        let seen = placeholder(packet);
        let rest = u16::try_from(len - seen.len()).expect("an MTU of at most 9000 bytes");
        let mut slot = PacketSlot { packet: seen, ..PacketSlot::default() };
        let departure = Departure { padding: rest, payload: None, ..*departure };
        self.put_on_wire(node, id, &mut slot, &departure);
    }

    /// Returns the contents of a departing packet's payload, with its offset.
    fn contents(
        &self,
        node: NodeId,
        packet: &Packet,
        departure: &Departure,
    ) -> Option<(Contents, u32)> {
        let Packet::Data(_, Some(message)) = packet else { return None };
        departure.payload?;
        let id = self.hosts[node.index()].channel(departure.connection?)?;
        let opened = self.traffic.channel(id)?.hosts[Side::Opener.index()] == node;
        let from = if opened { Side::Opener } else { Side::Peer };
        Some((Contents::new(id, from, message.id), message.offset))
    }

    /// Forgets the keys of connections that have ended.
    fn forget_keys(&mut self, node: NodeId) {
        let (endpoint, seals) = engine_and_seals(&mut self.hosts[node.index()]);
        while let Some(forgotten) = endpoint.poll_ended() {
            seals.remove(forgotten);
        }
    }
}

/// A host's engine while a datagram is opened.
struct Engine<'h, 'd> {
    endpoint: &'h mut Endpoint,
    /// `true` if the engine got a packet of the datagram.
    was_opened: bool,
    /// The placement that the engine requests, and its payload.
    placement: Option<(Placement, &'d [u8])>,
}

impl<'d> PacketHandler<'d> for Engine<'_, 'd> {
    fn handle_packet(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet,
        payload: &'d [u8],
    ) -> bool {
        self.was_opened = true;
        if packet.announces_rdma() {
            return false;
        }
        let len = u16::try_from(payload.len()).expect("no longer than the datagram");
        if let Verdict::Place(placement) = self.endpoint.handle_packet(now, arrival, packet, len) {
            self.placement = Some((placement, &payload[..placement.len.into()]));
        }
        true
    }

    fn classify_setup(&self, now: Instant, arrival: &Arrival, header: &SetupHeader) -> SetupClass {
        self.endpoint.classify_setup(now, arrival, header)
    }

    fn handle_admission(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
        admission: Admission,
    ) {
        self.was_opened = true;
        let _ = self.endpoint.handle_admission(now, arrival, header, admission);
    }

    fn handle_unknown_encrypted(&mut self, from: SocketAddr, connection: ConnectionId, iv: u32) {
        self.endpoint.handle_unknown_encrypted(from, connection, iv);
    }
}

/// Returns a host's engine and its encryption.
fn engine_and_seals(host: &mut Host) -> (&mut Endpoint, &mut Seals) {
    let seals = host.stack.as_deref_mut().and_then(Stack::seals_mut);
    (&mut host.endpoint, seals.expect("the caller's host encrypts"))
}
