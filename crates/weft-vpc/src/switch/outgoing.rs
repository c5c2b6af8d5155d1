//! The egress of frames that tenants send.

use alloc::vec::Vec;
use weft_transport::{ConnectionId, Departure, Message};
use weft_units::Instant;
use weft_wire::{MacAddr, Packet, VirtioNetHeader};

use super::hello::{Hello, opcode, service_of};
use super::inspect::count_segments;
use super::pair::{Outgoing, Pair, State, VnicPair};
use super::{DropCause, Handover, Place, Plain, PortId, Reading, Switch, Tenants, Token, Vni};
use crate::gateway::forward;
use crate::{Direction, Frame, GATEWAY};

/// The token of a hello, which is no tenant's frame.
const HELLO_TOKEN: u64 = u64::MAX;

fn token_of(port: PortId, token: Token) -> u64 {
    u64::from(port.0) << 32 | u64::from(token.0)
}

/// Returns the frame that a message's token names; `None` for a hello.
#[expect(clippy::cast_possible_truncation, reason = "the two halves of a number")]
pub(super) fn frame_of(token: u64) -> Option<(PortId, Token)> {
    (token != HELLO_TOKEN).then_some((PortId((token >> 32) as u32), Token(token as u32)))
}

/// A frame that a tenant sent; its bytes are in the tenant's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantFrame {
    /// The port that sent the frame.
    pub port: PortId,
    /// The frame's token at the port.
    pub token: Token,
    /// Length of the frame with its virtio-net header, bytes.
    pub len: u32,
}

/// A packet of the transport that is about to be sent.
#[derive(Debug)]
pub struct Leaving<'a> {
    /// The packet's network; zero for a packet that sets a connection up.
    pub vni: Vni,
    /// The destination and path.
    pub departure: &'a Departure,
    /// The packet's headers.
    pub packet: &'a Packet,
    pub(super) pair: Option<&'a Pair>,
}

impl Leaving<'_> {
    /// Returns the thread of the other host that the packet is for; `None` while that is unknown.
    pub fn peer_thread(&self) -> Option<u8> {
        self.pair?.peer_thread
    }

    /// Returns the length of the payload after the headers, bytes.
    pub fn payload_len(&self) -> u16 {
        self.departure.payload_len()
    }

    /// Copies the payload to `out`, which has the length [`payload_len`](Self::payload_len).
    pub fn read(&self, tenants: &mut impl Tenants, out: &mut [u8]) {
        let Some(payload) = self.departure.payload else { return out.fill(0) };
        if let Some((port, token)) = frame_of(payload.token) {
            let is_retransmission =
                matches!(self.packet, Packet::Data(header, _) if header.retransmitted);
            let reading = if is_retransmission { Reading::Retransmission } else { Reading::First };
            tenants.read(port, token, payload.offset, out, reading);
            if let (0, Some(pair), Some(ethernet)) =
                (payload.offset, self.pair, out.get_mut(VirtioNetHeader::LEN..))
            {
                forward(ethernet, pair.remote);
            }
        } else if let Some(pair) = self.pair {
            let hello = Hello { vni: pair.vni, source: pair.local, destination: pair.remote };
            out.copy_from_slice(&hello.emit()[payload.offset as usize..][..out.len()]);
        }
    }
}

impl super::Port {
    /// Decides whether the tenant may send a frame.
    fn admit(
        &mut self,
        virtio: &VirtioNetHeader,
        frame: &Frame,
        bytes: &[u8],
        now: Instant,
    ) -> Result<(), DropCause> {
        let allowed = &self.config.addresses;
        let own_mac = allowed.is_empty() || allowed.contains(&frame.source);
        if !own_mac || !self.gate.has_own_source(frame, bytes) {
            return Err(DropCause::Spoofed);
        }
        let decision = self.gate.evaluate(Direction::Egress, frame, bytes, now);
        self.log_flow(Direction::Egress, virtio, frame, decision, now);
        decision?;
        // A frame whose offload is inconsistent does not leave the host, and its segments are not counted.
        let frames = count_segments(virtio, frame)?;
        match self.gate.admit(Direction::Egress, frame.len, frames, now) {
            true => Ok(()),
            false => Err(DropCause::RateLimited),
        }
    }
}

impl Switch {
    /// Handles a frame that a tenant sent. It begins with `head`: all of it, or at least [`Frame::MIN_PARSE_BYTES`]
    /// bytes. The switch releases the token when it no longer needs the frame.
    pub fn handle_frame(
        &mut self,
        now: Instant,
        sent: TenantFrame,
        head: &[u8],
        tenants: &mut impl Tenants,
    ) {
        let TenantFrame { port, token, len } = sent;
        let Some(sender) = self.ports.get_mut(&port) else { return tenants.release(port, token) };
        let vni = sender.config.vni;
        let Ok((virtio, frame)) = Frame::parse_virtio(head, len as usize) else {
            return self.drop_frame(port, token, DropCause::Malformed, tenants);
        };
        let bytes = &head[VirtioNetHeader::LEN..];
        if let Err(cause) = sender.admit(&virtio, &frame, bytes, now) {
            return self.drop_frame(port, token, cause, tenants);
        }
        let table = self.table(vni);
        if !table.learn(&frame, bytes, Place::Port(port), now) {
            self.returned.insert((vni, frame.source));
        }
        let table = self.table(vni);
        if let Some(answer) = table.answer(&frame, bytes, now) {
            tenants.release(port, token);
            return self.deliver(now, port, &[0; VirtioNetHeader::LEN], &answer, tenants);
        }
        let (next, place) = match self.next(vni, &frame, now) {
            Ok(found) => found,
            Err(cause) => return self.drop_frame(port, token, cause, tenants),
        };
        match place.or_else(|| self.joined(port, next)) {
            Some(Place::Port(to)) if to == port => {
                self.drop_frame(port, token, DropCause::NoRoute, tenants);
            }
            Some(Place::Port(to)) => {
                match self.carry_locally(now, sent, vni, Some((to, next)), tenants) {
                    true => tenants.release(port, token),
                    false => self.drop_frame(port, token, DropCause::NoRoute, tenants),
                }
            }
            Some(Place::Peer(peer)) => {
                let vnics = VnicPair { vni, port, local: frame.source, remote: next, peer };
                let flow = (frame.flow_hash() & 0xffff) as u16;
                let limit = self.config.waiting_frames;
                self.carry_to_peer(now, vnics, Outgoing { token, len, flow }, limit, tenants);
            }
            None if self.network(vni).config.flood || frame.destination.is_group() => {
                self.flood(now, sent, vni, tenants);
            }
            None => self.drop_frame(port, token, DropCause::UnknownMachine, tenants),
        }
    }

    /// Returns the host that a connection for this pair of vNICs leads to: sufficient evidence for the place of a
    /// machine whose learned address has expired.
    fn joined(&self, port: PortId, remote: MacAddr) -> Option<Place> {
        let pair = self.pairs.get(self.pairs.sending((port, remote))?)?;
        (pair.state == State::Up).then_some(Place::Peer(pair.peer))
    }

    /// Returns the machine that receives a frame, and its place: the destination, or the gateway's next hop.
    fn next(
        &mut self,
        vni: Vni,
        frame: &Frame,
        now: Instant,
    ) -> Result<(MacAddr, Option<Place>), DropCause> {
        let table = self.table(vni);
        if frame.destination != GATEWAY {
            return Ok((frame.destination, table.find(frame, now)));
        }
        let ip = frame.ip().filter(|_| frame.vlan.is_none()).ok_or(DropCause::NoRoute)?;
        if ip.hop_limit <= 1 {
            return Err(DropCause::HopLimit);
        }
        let next = table.next_machine(ip.destination, now).ok_or(DropCause::NoRoute)?;
        let place = table.place(next, now).ok_or(DropCause::NoRoute)?;
        Ok((next, Some(place)))
    }

    /// Sends a frame to all other ports and hosts of its network.
    pub(super) fn flood(
        &mut self,
        now: Instant,
        sent: TenantFrame,
        vni: Vni,
        tenants: &mut impl Tenants,
    ) {
        let TenantFrame { port, token, len } = sent;
        let delivered_locally = self.carry_locally(now, sent, vni, None, tenants);
        let to: Vec<_> = self.network(vni).receivers().collect();
        if !to.is_empty() {
            let plain = Plain { vni, port, token, len, next: None, to, under: None, is_last: true };
            return self.carry_plain(now, plain, tenants);
        }
        match delivered_locally {
            true => tenants.release(port, token),
            false => self.drop_frame(port, token, DropCause::NoRoute, tenants),
        }
    }

    /// Returns the ports of a network except `except`.
    pub(super) fn others(
        &self,
        vni: Vni,
        except: Option<PortId>,
    ) -> impl Iterator<Item = PortId> + '_ {
        let wanted = move |(&id, port): (&PortId, &super::Port)| {
            (port.config.vni == vni && Some(id) != except).then_some(id)
        };
        self.ports.iter().filter_map(wanted)
    }

    /// Copies a frame to another port of this host, for this machine, or to all others of its network. Returns
    /// `false` if there is none.
    pub(super) fn carry_locally(
        &mut self,
        now: Instant,
        TenantFrame { port, token, len }: TenantFrame,
        vni: Vni,
        to: Option<(PortId, MacAddr)>,
        tenants: &mut impl Tenants,
    ) -> bool {
        let (own, threads) = match to {
            Some((to, _)) => {
                let own = self.ports.contains_key(&to).then_some(to);
                (Vec::from_iter(own), Vec::from_iter(self.others.thread_of(to)))
            }
            None => (self.others(vni, Some(port)).collect(), self.others.of_network(vni)),
        };
        if own.is_empty() && threads.is_empty() {
            return false;
        }
        let mut frame = core::mem::take(&mut self.scratch);
        frame.resize(len as usize, 0);
        tenants.read(port, token, 0, &mut frame, Reading::First);
        if let Some((_, next)) = to {
            forward(&mut frame[VirtioNetHeader::LEN..], next);
        }
        let to = to.map(|(port, _)| port);
        self.count(port).local_sent += 1;
        for to in own {
            let (header, ethernet) = frame.split_at(VirtioNetHeader::LEN);
            self.deliver(now, to, header, ethernet, tenants);
        }
        for thread in threads {
            self.hand_over(thread, Handover::Frame { from: port, vni, to, bytes: frame.clone() });
        }
        self.scratch = frame;
        true
    }

    /// Sends a frame to another host on its pair's connection, and requests that connection if there is none. The frame is
    /// dropped if it would wait for the connection behind `limit` others.
    pub(super) fn carry_to_peer(
        &mut self,
        now: Instant,
        vnics: VnicPair,
        frame: Outgoing,
        limit: usize,
        tenants: &mut impl Tenants,
    ) {
        let VnicPair { vni, port, remote, peer, .. } = vnics;
        let Outgoing { token, len, .. } = frame;
        let (next, under, to) = (Some(remote), None, [peer].to_vec());
        let plain = Plain { vni, port, token, len, next, to, under, is_last: true };
        let network = self.network(vni);
        let reliable = network.config.reliable && !network.vteps.contains_key(&peer);
        let connection = match self.pairs.sending((port, remote)) {
            _ if !reliable => None,
            Some(connection) => Some(connection),
            None if self.peers.refuses(now, peer) => {
                return self.drop_frame(port, token, DropCause::NotEncrypted, tenants);
            }
            None if self.peers.is_plain(now, peer) => None,
            None => self.connect(now, vnics),
        };
        let Some(connection) = connection else {
            return self.carry_plain(now, plain, tenants);
        };
        let pair = self.pairs.get_mut(connection).expect("looked up just now");
        if !pair.leads_to(Place::Peer(peer)) {
            // The machine has moved. Another connection may lead to its new place.
            self.close_pair(now, connection, tenants);
            return self.carry_to_peer(now, vnics, frame, limit, tenants);
        }
        // A connection at rest keeps no paths and no state of them.
        let paths = self.endpoint.connection_stats(connection).and_then(|flow| flow.paths);
        if paths.is_some_and(|paths| paths.up_count() == 0) {
            return self.carry_plain(now, plain, tenants);
        }
        if pair.state == State::Connecting {
            if pair.waiting.len() >= limit {
                return self.drop_frame(port, token, DropCause::QueueFull, tenants);
            }
            return pair.waiting.push_back(frame);
        }
        self.submit(now, connection, frame, tenants);
    }

    /// Requests a pair's connection. Returns `None` at the limit of connections.
    pub(super) fn connect(&mut self, now: Instant, vnics: VnicPair) -> Option<ConnectionId> {
        let service = service_of(vnics.remote);
        let connection = self.endpoint.connect(now, vnics.peer, service).ok()?;
        self.pairs.insert(connection, Pair::new(vnics, State::Connecting));
        Some(connection)
    }

    /// Sends the hello that names the vNICs which a connection joins.
    pub(super) fn send_hello(&mut self, now: Instant, connection: ConnectionId) {
        let message =
            Message { token: HELLO_TOKEN, opcode: opcode::HELLO, tag: 0, length: Hello::LEN };
        // A connection that ended meanwhile reports it by an event.
        if self.endpoint.submit(now, connection, message).is_ok()
            && let Some(pair) = self.pairs.get_mut(connection)
        {
            pair.next = pair.next.wrapping_add(1);
        }
    }

    /// Sends a frame on a connection that is set up.
    pub(super) fn submit(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        frame: Outgoing,
        tenants: &mut impl Tenants,
    ) {
        let Some(pair) = self.pairs.get_mut(connection) else { return };
        let (port, Outgoing { token, len, flow }) = (pair.port, frame);
        let token_on_wire = token_of(port, token);
        let message = Message {
            token: token_on_wire,
            opcode: opcode::FRAME,
            tag: pair.after(flow).tag(),
            length: len,
        };
        if self.endpoint.submit(now, connection, message).is_err() {
            return self.drop_frame(port, token, DropCause::QueueFull, tenants);
        }
        pair.sent.push_back((frame, pair.next));
        pair.next = pair.next.wrapping_add(1);
        self.count(port).reliable_sent += 1;
    }
}
