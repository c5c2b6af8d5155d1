//! What arrives from other hosts.

use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_transport::{Arrival, ConnectionId, Placement, Verdict};
use weft_units::Instant;
use weft_wire::{Packet, SetupKind, VirtioNetHeader};

use super::gate::Gate;
use super::hello::{Hello, opcode};
use super::incoming::{After, Message, Whole};
use super::pair::{Pair, State};
use super::{DropCause, Handover, Place, PortId, Slot, Switch, Tenants, Turn, Vni};
use crate::frame::ecn;
use crate::{Direction, Frame};

/// The longest frame with its virtio-net header: an IP packet of 64 KiB less one, an Ethernet header
/// and a tag.
const MAX_FRAME: u32 = 12 + 18 + 65_535;
/// The shortest: two headers and nothing.
const MIN_FRAME: u32 = 12 + 14;

impl Switch {
    /// A packet of the transport arrived for a network.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        vni: Vni,
        packet: &Packet,
        payload: &[u8],
        tenants: &mut impl Tenants,
    ) {
        if !self.hosts.contains(&arrival.from.ip()) {
            return self.counters.drop_frame(DropCause::UnknownPeer);
        }
        if let Some(thread) = self.belongs_to(vni, packet) {
            return self.redirect(thread, arrival, vni, packet, payload);
        }
        if self.config.threads > 1
            && matches!(packet, Packet::Setup(header) if header.kind == SetupKind::Reset)
        {
            self.spread_reset(arrival, vni, packet);
        }
        self.take_packet(now, arrival, vni, packet, payload, tenants);
    }

    /// A packet of the transport that is for this thread.
    pub(super) fn take_packet(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        vni: Vni,
        packet: &Packet,
        payload: &[u8],
        tenants: &mut impl Tenants,
    ) {
        // A payload past 64 KiB cannot come out of a UDP datagram.
        let len = u16::try_from(payload.len()).unwrap_or(u16::MAX);
        let verdict = self.endpoint.handle_packet(now, arrival, packet, len);
        let Verdict::Place(placement) = verdict else { return };
        let (connection, psn) = (placement.connection, placement.psn);
        let payload = &payload[..usize::from(placement.len)];
        let taken = match self.take_in(now, arrival, vni, &placement, payload, tenants) {
            Taken::Placed => self.endpoint.placed(now, connection, psn),
            Taken::Declined => self.endpoint.decline(connection, psn),
            Taken::Shed => self.endpoint.shed(now, connection, psn),
            Taken::Refused => return self.endpoint.close(now, connection),
        };
        taken.expect("the engine has just asked for this packet to be placed");
    }

    /// A plain frame arrived for a network, from the host at `from`.
    pub fn handle_plain(
        &mut self,
        now: Instant,
        from: SocketAddr,
        vni: Vni,
        ethernet: &[u8],
        tenants: &mut impl Tenants,
    ) {
        let Some(network) = self.networks.get_mut(&vni) else {
            return self.counters.drop_frame(DropCause::UnknownPeer);
        };
        let Some(&peer) = network.peers.iter().find(|peer| peer.ip() == from.ip()) else {
            return self.counters.drop_frame(DropCause::UnknownPeer);
        };
        let Ok(frame) = Frame::parse(ethernet, ethernet.len()) else {
            return self.counters.drop_frame(DropCause::Malformed);
        };
        network.table.learn(&frame, ethernet, Place::Peer(peer), now);
        let place = network.table.find(&frame, now);
        self.counters.plain_received += 1;
        let threads = match place {
            Some(Place::Port(port)) => Vec::from_iter(self.others.thread_of(port)),
            Some(Place::Peer(_)) => Vec::new(),
            None => self.others.of_network(vni),
        };
        for thread in threads {
            self.hand_over(thread, Handover::Plain { from, vni, ethernet: ethernet.to_vec() });
        }
        self.give_plain(now, vni, place, ethernet, tenants);
    }

    /// A plain frame that arrived at another thread, which has counted it.
    pub(super) fn take_plain(
        &mut self,
        now: Instant,
        from: SocketAddr,
        vni: Vni,
        ethernet: &[u8],
        tenants: &mut impl Tenants,
    ) {
        let Some(network) = self.networks.get_mut(&vni) else { return };
        let peer = network.peers.iter().find(|peer| peer.ip() == from.ip());
        let (Some(&peer), Ok(frame)) = (peer, Frame::parse(ethernet, ethernet.len())) else {
            return;
        };
        network.table.learn(&frame, ethernet, Place::Peer(peer), now);
        let place = network.table.find(&frame, now);
        self.give_plain(now, vni, place, ethernet, tenants);
    }

    /// Gives a plain frame to those of this thread's ports that it is for.
    fn give_plain(
        &mut self,
        now: Instant,
        vni: Vni,
        place: Option<Place>,
        ethernet: &[u8],
        tenants: &mut impl Tenants,
    ) {
        let ports = match place {
            Some(Place::Port(port)) => {
                Vec::from_iter(self.ports.contains_key(&port).then_some(port))
            }
            // It goes to no third host: two that took each other for the way would never stop.
            Some(Place::Peer(_)) => return self.counters.drop_frame(DropCause::NoRoute),
            None => self.others(vni, None).collect(),
        };
        for port in ports {
            self.give(now, port, &[0; VirtioNetHeader::LEN], ethernet, tenants);
        }
    }

    /// Gives a whole frame to a port of this host.
    pub(super) fn give(
        &mut self,
        now: Instant,
        port: PortId,
        header: &[u8],
        ethernet: &[u8],
        tenants: &mut impl Tenants,
    ) {
        let short = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let len = short(header.len()).saturating_add(short(ethernet.len()));
        let gate = self.ports.get_mut(&port).map(|port| &mut port.gate);
        let segment = VirtioNetHeader::parse(header).map_or(0, |(virtio, _)| virtio.gso_size);
        let frames = if segment == 0 { 1 } else { len.div_ceil(segment.into()) };
        if !gate.is_none_or(|gate| gate.admit(Direction::Ingress, len, frames.into(), now)) {
            return self.count(port).drop_frame(DropCause::RateLimited);
        }
        let fits = (MIN_FRAME..=MAX_FRAME).contains(&len);
        let Some(slot) = fits.then(|| tenants.claim(port, len, Turn::Next)).flatten() else {
            return self.count(port).drop_frame(DropCause::NoBuffer);
        };
        tenants.place(port, slot, 0, header);
        tenants.place(port, slot, short(header.len()), ethernet);
        self.finish(now, port, Whole { slot, len, marked: false }, None, tenants);
    }

    /// Puts a packet's payload where it belongs.
    fn take_in(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        vni: Vni,
        placement: &Placement,
        payload: &[u8],
        tenants: &mut impl Tenants,
    ) -> Taken {
        let connection = placement.connection;
        if placement.opcode == opcode::HELLO {
            return self.take_hello(now, connection, vni, placement, payload);
        }
        let window = self.config.transport.reorder_window;
        // Frames that overtook their hello come again.
        let Some(pair) = self.pairs.get_mut(connection) else { return Taken::Declined };
        let (port, foreign) = (pair.port, pair.vni != vni);
        let turn = pair.arriving.turn(placement.message);
        let Some(message) = pair.arriving.message(placement.message, window) else {
            return Taken::Declined;
        };
        if foreign || placement.opcode != opcode::FRAME {
            self.count(port).drop_frame(DropCause::Misdirected);
            return Taken::Declined;
        }
        if *message == Message::Missing {
            if !(MIN_FRAME..=MAX_FRAME).contains(&placement.length) {
                *message = Message::Done;
                self.count(port).drop_frame(DropCause::Malformed);
                self.show(now, connection, placement.message, tenants);
                return Taken::Placed;
            }
            let Some(slot) = tenants.claim(port, placement.length, turn) else {
                self.count(port).declined += 1;
                return Taken::Declined;
            };
            let (len, after) = (placement.length, After::from_tag(placement.tag));
            *message = Message::Claimed { slot, placed: 0, len, after, marked: false };
        }
        let Message::Claimed { slot, placed, len, marked, .. } = message else {
            return Taken::Placed;
        };
        // A packet carries about what a frame of the network below does, so a super-frame counts as the
        // frames it is cut into.
        let gate = self.ports.get_mut(&port).map(|port| &mut port.gate);
        let admit = |gate: &mut Gate| gate.admit(Direction::Ingress, placement.len.into(), 1, now);
        if !gate.is_none_or(admit) {
            tenants.cancel(port, *slot);
            *message = Message::Done;
            self.count(port).drop_frame(DropCause::RateLimited);
            self.show(now, connection, placement.message, tenants);
            return Taken::Shed;
        }
        if *len != placement.length {
            tenants.cancel(port, *slot);
            *message = Message::Done;
            self.count(port).drop_frame(DropCause::Malformed);
            self.show(now, connection, placement.message, tenants);
            return Taken::Placed;
        }
        tenants.place(port, *slot, placement.offset, payload);
        *placed += u32::from(placement.len);
        *marked |= arrival.congestion_experienced;
        if *placed == *len {
            self.show(now, connection, placement.message, tenants);
        }
        Taken::Placed
    }

    /// A frame is whole, or will never be: the tenant sees what it may now see, this one and those that
    /// waited for it.
    fn show(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        mut message: u32,
        tenants: &mut impl Tenants,
    ) {
        while let Some(pair) = self.pairs.get_mut(connection) {
            let (port, network) = (pair.port, self.networks.get(&pair.vni));
            let in_order = network.is_none_or(|network| network.config.in_order);
            let Some(whole) = pair.arriving.take_ready(&mut message, in_order) else { return };
            self.count(port).reliable_received += 1;
            self.finish(now, port, whole, Some(connection), tenants);
        }
    }

    /// The peer says which vNICs its connection joins. One that names none of ours is closed.
    fn take_hello(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        vni: Vni,
        placement: &Placement,
        payload: &[u8],
    ) -> Taken {
        let window = self.config.transport.reorder_window;
        let hello = Hello::parse(payload).filter(|hello| hello.vni == vni);
        let Some(hello) = hello else {
            self.counters.drop_frame(DropCause::Malformed);
            return Taken::Refused;
        };
        if self.pairs.get(connection).is_none() {
            let peer = self.endpoint.peer(connection).expect("its packet was accepted").address;
            let Some(port) = self.port_of(now, &hello, peer) else {
                self.counters.drop_frame(DropCause::Misdirected);
                return Taken::Refused;
            };
            let mut pair = Pair::new(vni, port, (hello.destination, hello.source), peer, State::Up);
            pair.peer_thread = self.endpoint.peer(connection).map(|peer| peer.thread_id);
            self.pairs.insert(connection, pair);
        }
        let pair = self.pairs.get_mut(connection).expect("there, or inserted just now");
        if let Some(message) = pair.arriving.message(placement.message, window) {
            *message = Message::Done;
        }
        Taken::Placed
    }

    /// The port that a hello of `peer` means.
    fn port_of(&self, now: Instant, hello: &Hello, peer: SocketAddr) -> Option<PortId> {
        let network = self.networks.get(&hello.vni)?;
        if !network.peers.iter().any(|known| known.ip() == peer.ip()) {
            return None;
        }
        match network.table.place(hello.destination, now)? {
            Place::Port(port) => Some(port),
            Place::Peer(_) => None,
        }
    }

    /// A frame is whole: the tenant sees it, unless it may not.
    pub(super) fn finish(
        &mut self,
        now: Instant,
        port: PortId,
        Whole { slot, len, marked }: Whole,
        connection: Option<ConnectionId>,
        tenants: &mut impl Tenants,
    ) {
        let mut head = [0; Frame::LOOK_AHEAD + VirtioNetHeader::LEN];
        let known = tenants.peek(port, slot, &mut head);
        let drop = match self.inspect(now, port, connection, &head[..known], len) {
            Ok(()) => {
                if marked {
                    pass_mark_on(port, slot, &mut head[..known], tenants);
                }
                return tenants.complete(port, slot);
            }
            Err(cause) => cause,
        };
        self.count(port).drop_frame(drop);
        tenants.cancel(port, slot);
    }

    /// Whether a port's tenant may see a frame that begins so.
    fn inspect(
        &mut self,
        now: Instant,
        port: PortId,
        connection: Option<ConnectionId>,
        head: &[u8],
        len: u32,
    ) -> Result<(), DropCause> {
        let parsed = Frame::parse_virtio(head, len as usize);
        let (_, frame) = parsed.map_err(|_| DropCause::Malformed)?;
        if let Some(port) = self.ports.get_mut(&port) {
            port.gate.judge(Direction::Ingress, &frame, &head[VirtioNetHeader::LEN..], now)?;
        }
        let Some(pair) = connection.and_then(|connection| self.pairs.get(connection)) else {
            return Ok(());
        };
        let (peer, vni) = (pair.peer, pair.vni);
        let network = self.networks.get_mut(&vni).ok_or(DropCause::NoRoute)?;
        let behind = || network.table.find(&frame, now);
        let ours = frame.destination == pair.local || behind() == Some(Place::Port(port));
        if !ours {
            return Err(DropCause::Misdirected);
        }
        network.table.learn(&frame, &head[VirtioNetHeader::LEN..], Place::Peer(peer), now);
        Ok(())
    }
}

/// Sets CE in the tenant's packet if its sender said that it is ECN-capable (RFC 6040, section 4.2).
///
/// A packet that is not ECN-capable stays as it is and is not dropped: the transport below retransmits
/// losses and has slowed down by the mark itself. `head` are the frame's first bytes, in the buffer at `slot`.
fn pass_mark_on(port: PortId, slot: Slot, head: &mut [u8], tenants: &mut impl Tenants) {
    let Some(header) = head.split_at_mut_checked(VirtioNetHeader::LEN).map(|(_, frame)| frame)
    else {
        return;
    };
    let Some(changed) = ecn::mark(header) else { return };
    let offset = u32::try_from(VirtioNetHeader::LEN + changed.start).unwrap_or(u32::MAX);
    tenants.place(port, slot, offset, &header[changed]);
}

/// What becomes of a packet.
enum Taken {
    Placed,
    Declined,
    Shed,
    /// Its connection is to end.
    Refused,
}
