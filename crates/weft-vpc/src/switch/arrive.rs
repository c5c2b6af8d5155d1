//! The ingress of packets from other hosts.

use core::net::SocketAddr;

use weft_transport::{Arrival, ConnectionId, Placement, Verdict};
use weft_units::Instant;
use weft_wire::{Packet, SetupKind, VirtioNetHeader};

use super::hello::{Hello, opcode};
use super::incoming::{After, Claimed, Inspection, Message};
use super::inspect::{HEAD, Piece};
use super::pair::{Pair, State, VnicPair};
use super::pieces::Pieces;
use super::{DropCause, Place, PortId, Slot, Staging, Switch, Tenants, Turn, Vni};
use crate::frame::ecn;

/// Largest length of a frame with its virtio-net header, bytes: an IP packet of 64 KiB less one, an Ethernet header
/// and a tag.
const MAX_FRAME: u32 = 12 + 18 + 65_535;
/// Smallest length, bytes: the two headers.
const MIN_FRAME: u32 = 12 + 14;

/// A packet of the transport that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Inbound<'a> {
    /// The path and marks with which it arrived.
    pub arrival: &'a Arrival,
    /// The network that it was addressed to.
    pub vni: Vni,
    /// The packet's headers.
    pub packet: &'a Packet,
    /// The bytes after the headers.
    pub payload: &'a [u8],
}

/// A frame that arrived outside a pair's connection.
#[derive(Clone, Copy)]
pub(super) struct PlainArrival<'a> {
    pub(super) from: SocketAddr,
    /// `true` if `from` is authenticated.
    pub(super) proven: bool,
    pub(super) vni: Vni,
    pub(super) ethernet: &'a [u8],
}

impl Switch {
    /// Handles a packet of the transport that arrived for a network.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        inbound: &Inbound<'_>,
        tenants: &mut impl Tenants,
    ) {
        if !self.redirect_packet(inbound) {
            self.ingest_packet(now, inbound, tenants);
        }
    }

    /// Redirects a packet of the transport to the thread of its connection. Returns `true` if this thread is done
    /// with it: the packet was redirected, or dropped because its sender is no peer.
    #[inline]
    pub fn redirect_packet(&mut self, inbound: &Inbound<'_>) -> bool {
        if !self.hosts.contains(&inbound.arrival.from.ip()) {
            self.counters.drop_frame(DropCause::UnknownPeer);
            return true;
        }
        if let Some(thread) = self.belongs_to(inbound.vni, inbound.packet) {
            self.redirect(thread, inbound);
            return true;
        }
        if self.config.threads > 1
            && matches!(inbound.packet, Packet::Setup(header) if header.kind == SetupKind::Reset)
        {
            self.broadcast_reset(inbound);
        }
        false
    }

    /// Handles a packet of the transport that belongs to this thread.
    pub(super) fn ingest_packet(
        &mut self,
        now: Instant,
        inbound: &Inbound<'_>,
        tenants: &mut impl Tenants,
    ) {
        // A UDP datagram has no payload past 64 KiB.
        let len = u16::try_from(inbound.payload.len()).unwrap_or(u16::MAX);
        let verdict = self.endpoint.handle_packet(now, inbound.arrival, inbound.packet, len);
        let Verdict::Place(placement) = verdict else { return };
        let (connection, psn) = (placement.connection, placement.psn);
        let payload = &inbound.payload[..usize::from(placement.len)];
        let inbound = Inbound { payload, ..*inbound };
        let outcome = match self.ingest(now, &inbound, &placement, tenants) {
            Ingested::Placed => self.endpoint.placed(now, connection, psn),
            Ingested::Declined => self.endpoint.decline(connection, psn),
            Ingested::Policed => self.endpoint.police(now, connection, psn),
            Ingested::Refused => return self.endpoint.close(now, connection),
        };
        outcome.expect("the engine has just requested the placement of this packet");
    }

    /// Delivers a whole frame to a port of this host, if its tenant may receive it.
    pub(super) fn deliver(
        &mut self,
        now: Instant,
        port: PortId,
        header: &[u8],
        ethernet: &[u8],
        tenants: &mut impl Tenants,
    ) {
        let short = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let len = short(header.len()).saturating_add(short(ethernet.len()));
        let Some(receiver) = self.ports.get_mut(&port) else { return };
        if let Err(cause) = receiver.admit_whole(header, ethernet, len, now) {
            return receiver.counters.drop_frame(cause);
        }
        let fits = (MIN_FRAME..=MAX_FRAME).contains(&len);
        let claim = || tenants.claim(port, len, Turn::Next, Staging::InPlace, ethernet);
        let Some(slot) = fits.then(claim).flatten() else {
            return receiver.counters.drop_frame(DropCause::NoBuffer);
        };
        tenants.place(port, slot, 0, header);
        tenants.place(port, slot, short(header.len()), ethernet);
        tenants.complete(port, slot);
    }

    /// Places a packet's payload in the buffer of its frame.
    fn ingest(
        &mut self,
        now: Instant,
        inbound: &Inbound<'_>,
        placement: &Placement,
        tenants: &mut impl Tenants,
    ) -> Ingested {
        let Inbound { arrival, vni, payload, .. } = *inbound;
        let (connection, number) = (placement.connection, placement.message);
        if placement.opcode == opcode::HELLO {
            return self.ingest_hello(now, connection, vni, placement, payload);
        }
        let window = self.config.transport.reorder_window;
        let Self { pairs, ports, networks, .. } = self;
        // Frames that overtook their hello are retransmitted.
        let Some(pair) = pairs.get_mut(connection) else { return Ingested::Declined };
        let id = pair.port;
        let (Some(port), Some(network)) = (ports.get_mut(&id), networks.get_mut(&pair.vni)) else {
            return Ingested::Declined;
        };
        let turn = pair.arriving.turn(number);
        let Some(message) = pair.arriving.message(number, window).copied() else {
            return Ingested::Declined;
        };
        if pair.vni != vni || placement.opcode != opcode::FRAME {
            port.counters.drop_frame(DropCause::Misdirected);
            return Ingested::Declined;
        }
        let mut frame = match message {
            Message::Done => return Ingested::Placed,
            Message::Claimed(frame) => frame,
            Message::Missing if !(MIN_FRAME..=MAX_FRAME).contains(&placement.length) => {
                return self.abandon(now, placement, None, DropCause::Malformed, tenants);
            }
            Message::Missing => {
                let (after, pieces) = (After::from_tag(placement.tag), Pieces::new(placement));
                let inspection = port.inspection_of(placement, after, pair, network);
                let staging = inspection.staging();
                let head = if placement.offset == 0 { payload } else { &[] };
                let head = head.get(VirtioNetHeader::LEN..).unwrap_or(&[]);
                let Some(slot) = tenants.claim(id, placement.length, turn, staging, head) else {
                    port.counters.declined += 1;
                    return Ingested::Declined;
                };
                Claimed { slot, pieces, after, inspection, marked: false }
            }
        };
        let piece = Piece { placement, payload };
        let moved_before = network.table.counters().moved;
        if let Err(cause) = port.admit_piece(&mut frame, piece, pair, network, now) {
            return self.abandon(now, placement, Some(frame.slot), cause, tenants);
        }
        let moved = network.table.counters().moved != moved_before;
        let remote = pair.remote;
        tenants.place(id, frame.slot, placement.offset, payload);
        frame.marked |= arrival.congestion_experienced;
        if let Some(message) = pair.arriving.message(number, window) {
            *message = Message::Claimed(frame);
        }
        if frame.pieces.are_whole() {
            self.complete_ready(now, connection, number, tenants);
        }
        if moved {
            self.follow(now, vni, remote, tenants);
        }
        Ingested::Placed
    }

    /// Drops a frame of which `piece` has arrived: its remaining pieces are acknowledged and discarded.
    #[cold]
    fn abandon(
        &mut self,
        now: Instant,
        piece: &Placement,
        slot: Option<Slot>,
        cause: DropCause,
        tenants: &mut impl Tenants,
    ) -> Ingested {
        let window = self.config.transport.reorder_window;
        if let Some(pair) = self.pairs.get_mut(piece.connection) {
            let port = pair.port;
            if let Some(message) = pair.arriving.message(piece.message, window) {
                *message = Message::Done;
            }
            if let Some(slot) = slot {
                tenants.cancel(port, slot);
            }
            self.count(port).drop_frame(cause);
        }
        self.complete_ready(now, piece.connection, piece.message, tenants);
        if cause == DropCause::RateLimited { Ingested::Policed } else { Ingested::Placed }
    }

    /// Completes the frames that the tenant may now see after `message` became whole or was dropped: that frame and
    /// those that waited for it.
    fn complete_ready(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        mut message: u32,
        tenants: &mut impl Tenants,
    ) {
        while let Some(pair) = self.pairs.get_mut(connection) {
            let (port, network) = (pair.port, self.networks.get(&pair.vni));
            let in_order = network.is_none_or(|network| network.config.in_order);
            let Some(frame) = pair.arriving.take_ready(&mut message, in_order) else { return };
            self.count(port).reliable_received += 1;
            if frame.inspection == Inspection::Passed && !frame.marked {
                tenants.complete(port, frame.slot);
            } else {
                self.finish(now, connection, port, &frame, tenants);
            }
        }
    }

    /// Handles the peer's hello, which names the vNICs that its connection joins. A connection for no vNIC of this
    /// host is closed.
    fn ingest_hello(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        vni: Vni,
        placement: &Placement,
        payload: &[u8],
    ) -> Ingested {
        let window = self.config.transport.reorder_window;
        let hello = Hello::parse(payload).filter(|hello| hello.vni == vni);
        let Some(hello) = hello else {
            self.counters.drop_frame(DropCause::Malformed);
            return Ingested::Refused;
        };
        if self.pairs.get(connection).is_none() {
            let peer = self.endpoint.peer(connection).expect("its packet was accepted").address;
            let port = match self.port_of(now, &hello, peer) {
                Ok(port) => port,
                Err(cause) => {
                    self.counters.drop_frame(cause);
                    return Ingested::Refused;
                }
            };
            let Hello { source: remote, destination: local, .. } = hello;
            let vnics = VnicPair { vni, port, local, remote, peer };
            let mut pair = Pair::new(vnics, State::Up);
            pair.peer_thread = self.endpoint.peer(connection).map(|peer| peer.thread_id);
            self.pairs.insert(connection, pair);
            self.peers.on_weft_answer(peer);
        }
        let pair = self.pairs.get_mut(connection).expect("there, or inserted just now");
        if let Some(message) = pair.arriving.message(placement.message, window) {
            *message = Message::Done;
        }
        Ingested::Placed
    }

    /// Returns the port that `peer`'s hello names.
    fn port_of(&self, now: Instant, hello: &Hello, peer: SocketAddr) -> Result<PortId, DropCause> {
        let network = self.networks.get(&hello.vni).ok_or(DropCause::Misdirected)?;
        if !network.peers.iter().any(|known| known.ip() == peer.ip()) {
            return Err(DropCause::Misdirected);
        }
        network.is_set_to(hello.source, peer)?;
        match network.table.place(hello.destination, now) {
            Some(Place::Port(port)) => Ok(port),
            Some(Place::Peer(_)) | None => Err(DropCause::Misdirected),
        }
    }

    /// Completes a whole frame for the tenant, after an inspection if it had none.
    fn finish(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        port: PortId,
        frame: &Claimed,
        tenants: &mut impl Tenants,
    ) {
        let mut head = [0; HEAD];
        let known = tenants.peek(port, frame.slot, &mut head);
        if frame.inspection != Inspection::Passed
            && let Err(cause) =
                self.inspect_whole(now, connection, &head[..known], frame.pieces.frame_len())
        {
            self.count(port).drop_frame(cause);
            return tenants.cancel(port, frame.slot);
        }
        if frame.marked {
            propagate_mark(port, frame.slot, &mut head[..known], tenants);
        }
        tenants.complete(port, frame.slot);
    }

    /// Inspects a frame of `len` bytes that begins with `head`.
    fn inspect_whole(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        head: &[u8],
        len: u32,
    ) -> Result<(), DropCause> {
        let pair = self.pairs.get(connection).ok_or(DropCause::ConnectionLost)?;
        let port = self.ports.get_mut(&pair.port).ok_or(DropCause::NoRoute)?;
        let network = self.networks.get_mut(&pair.vni).ok_or(DropCause::NoRoute)?;
        port.inspect(head, len, pair, network, now)
    }
}

/// Sets CE in the tenant's packet if its sender marked it ECN-capable (RFC 6040, section 4.2).
///
/// A packet that is not ECN-capable stays unchanged and is not dropped: the transport below retransmits losses and
/// has slowed down on the mark itself. `head` are the frame's first bytes, in the buffer at `slot`; a tenant that
/// has changed them there gets its own changes back.
fn propagate_mark(port: PortId, slot: Slot, head: &mut [u8], tenants: &mut impl Tenants) {
    let Some(header) = head.split_at_mut_checked(VirtioNetHeader::LEN).map(|(_, frame)| frame)
    else {
        return;
    };
    let Some(changed) = ecn::mark(header) else { return };
    let offset = u32::try_from(VirtioNetHeader::LEN + changed.start).unwrap_or(u32::MAX);
    tenants.place(port, slot, offset, &header[changed]);
}

/// The result for a packet.
enum Ingested {
    Placed,
    Declined,
    Policed,
    /// The packet's connection is to be closed.
    Refused,
}
