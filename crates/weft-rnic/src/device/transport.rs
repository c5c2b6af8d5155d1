//! Packets, time and transport events: the interface between queue pairs and the network.

use weft_transport::path::PathId;
use weft_transport::{
    Acknowledgement, Arrival, CloseReason, ConnectionId, Departure, Event as TransportEvent,
    LinkId, Payload, Verdict,
};
use weft_units::Instant;
use weft_wire::{Packet, RdmaHeader, RdmaOperation, U24};

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::Device;
use super::datagrams::{SERVICE, datagram_header};
use super::requester::scatter;
use crate::memory::{Accessor, Memory, Right};
use crate::queue_pair::{Answer, Flow, QueuePair, Role, Syndrome, Token};
use crate::{Context, Place, QueuePairNumber};

/// A packet to send: the transport's headers, the RDMA header, and the length of the payload.
#[derive(Clone, Copy, Debug)]
pub struct Transmit {
    /// The peer's address and receive port.
    pub to: SocketAddr,
    /// The link over which it is sent; `None` for the network.
    pub link: Option<LinkId>,
    /// The connection; `None` for a reply without a connection.
    pub connection: Option<ConnectionId>,
    /// The context of the sending queue pair; `None` for a reply without a connection, and for final packets of a queue pair
    /// that was destroyed.
    pub context: Option<Context>,
    /// The path; the owner maps it to a UDP source port.
    pub path: PathId,
    /// The transport's headers.
    pub packet: Packet,
    /// The RDMA header, if the transport's headers announce one.
    pub rdma: Option<RdmaHeader>,
    /// Bytes of payload after the headers.
    pub payload_len: u16,
    /// An acknowledgement that a packet over a link carries.
    pub acknowledged: Option<Acknowledgement>,
}

/// A packet received over a link.
#[derive(Clone, Copy, Debug)]
pub struct FromLink<'a> {
    /// The transport's headers.
    pub packet: &'a Packet,
    /// The RDMA header, if the transport's headers announce one.
    pub rdma: Option<&'a RdmaHeader>,
    /// Bytes of payload after the headers.
    pub payload_len: u16,
    /// An acknowledgement that the packet carries.
    pub acknowledged: Option<Acknowledgement>,
}

impl Default for Transmit {
    /// Returns an empty packet, to be filled in.
    #[inline]
    fn default() -> Self {
        Self {
            to: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
            link: None,
            connection: None,
            context: None,
            path: PathId(0),
            packet: Packet::default(),
            rdma: None,
            payload_len: 0,
            acknowledged: None,
        }
    }
}

impl Transmit {
    /// Sets the destination and the acknowledgement; returns the payload.
    #[inline]
    pub(super) fn set_out(
        &mut self,
        link: Option<LinkId>,
        departure: Departure,
        acknowledged: Option<Acknowledgement>,
    ) -> Option<Payload> {
        let Departure { to, connection, path, padding, payload } = departure;
        (self.to, self.connection, self.path) = (to, connection, path);
        self.payload_len = padding;
        (self.link, self.acknowledged) = (link, acknowledged);
        payload
    }
}

/// The source of a packet's payload.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// Ranges of owners' memory, concatenated.
    Memory(&'a [Place]),
    /// Bytes of the device.
    Inline(&'a [u8]),
    /// Arbitrary bytes: the padding of a probe, or a retransmission that the peer has already received and will discard.
    Anything,
}

/// The RDMA header of a packet, and the source of its payload.
enum Load {
    Memory(RdmaHeader),
    Inline(RdmaHeader, QueuePairNumber, u32),
    /// The peer has received the message: its response arrived before the transport's acknowledgement.
    Known,
    /// The memory is no longer accessible: the connection fails.
    Gone(QueuePairNumber, Role),
}

impl Load {
    /// Returns `true` if the payload can be arbitrary bytes. Programs may deregister memory once the peer has notified them
    /// that its READ is done, possibly before the transport's acknowledgement: the peer's transport discards the
    /// retransmission. A peer that still waits for the packet finds a header without a queue pair, and closes the connection.
    const fn is_discarded(&self, packet: &Packet) -> bool {
        let retransmitted = matches!(packet, Packet::Data(header, _) if header.retransmitted);
        match self {
            Self::Known => true,
            Self::Gone(_, Role::Responder) => retransmitted,
            _ => false,
        }
    }
}

impl Device {
    /// Handles a packet from the network: the transport's headers, the RDMA header if they announce one, and the length of the
    /// payload. The payload is placed or held through `memory` before this returns.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet,
        rdma: Option<&RdmaHeader>,
        payload_len: u16,
        memory: &mut impl Memory,
    ) {
        self.handle(now, None, arrival, packet, rdma, payload_len, memory);
    }

    /// Handles a packet from a link. `from` is the address that the peer claims; it must be the one reachable over this link. Its
    /// port is ignored.
    pub fn handle_link_packet(
        &mut self,
        now: Instant,
        link: LinkId,
        from: SocketAddr,
        came: FromLink<'_>,
        memory: &mut impl Memory,
    ) {
        let arrival = Arrival { from, received_at: now, congestion_experienced: false, hops: 0 };
        let FromLink { packet, rdma, payload_len, acknowledged } = came;
        if let Some(acknowledged) = acknowledged {
            self.carriers.handle_acknowledged(now, link, from, acknowledged);
            self.handle_transport_events(now);
        }
        self.handle(now, Some(link), &arrival, packet, rdma, payload_len, memory);
    }

    #[expect(clippy::too_many_arguments, reason = "what a packet is, and where it came from")]
    fn handle(
        &mut self,
        now: Instant,
        link: Option<LinkId>,
        arrival: &Arrival,
        packet: &Packet,
        rdma: Option<&RdmaHeader>,
        payload_len: u16,
        memory: &mut impl Memory,
    ) {
        let verdict = self.carriers.handle_packet(now, link, arrival, packet, payload_len);
        if let Verdict::Place(placement) = verdict {
            match rdma {
                Some(header) => self.ingest(now, &placement, header, memory),
                None => self.carriers.close(now, placement.connection),
            }
        }
        self.handle_transport_events(now);
    }

    /// Adds a link to a process of this host: a channel without loss, duplication or reordering.
    pub fn link_up(&mut self, now: Instant, link: LinkId) {
        self.carriers.link_up(now, link);
    }

    /// Routes new connections to `peer` (address and receive port) over this link instead of the network.
    pub fn reach_over(&mut self, peer: SocketAddr, link: LinkId) {
        self.carriers.reach_over(peer, link);
    }

    /// Returns `true` if packets wait to be sent over links.
    pub fn owes_links(&self) -> bool {
        self.carriers.owes_links()
    }

    /// Returns `true` if messages wait to be sent over links, and not only acknowledgements, which may wait to be carried by a
    /// message.
    pub fn has_messages_for_links(&self) -> bool {
        self.carriers.has_messages_for_links()
    }

    /// Pauses a link that has no room for another packet until it is [released](Self::release_link).
    pub fn hold_link(&mut self, link: LinkId) {
        self.carriers.hold_link(link);
    }

    /// Resumes a link that has room again.
    pub fn release_link(&mut self, link: LinkId) {
        self.carriers.release_link(link);
    }

    /// Pauses or resumes transmission to the network, as the host's port is full or has room.
    pub fn hold_network(&mut self, held: bool) {
        self.carriers.hold_network(held);
    }

    /// Removes a link: its connections fail, and peers are reached over the network again.
    pub fn link_down(&mut self, now: Instant, link: LinkId) {
        self.carriers.link_down(link);
        self.handle_transport_events(now);
    }

    /// Handles the timers that are due. Call it at or after [`Self::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        self.carriers.handle_timeout(now);
        while let Some(&(until, qp)) = self.waits.first().filter(|(until, _)| *until <= now) {
            self.waits.remove(&(until, qp));
            self.on_wait_expired(now, qp);
        }
        self.handle_transport_events(now);
    }

    /// Returns the time at which [`Self::handle_timeout`] must be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let wait = self.waits.first().map(|(until, _)| *until);
        self.carriers.poll_timeout().into_iter().chain(wait).min()
    }

    /// Passes the next packet that may be sent now to `send`, with the source of its payload; returns `false` if there is none.
    /// Call it until it returns `false`, or until the owner's budget is spent.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        send: impl FnOnce(&Transmit, Source<'_>),
    ) -> bool {
        if !self.carriers.may_transmit() {
            return false;
        }
        // Headers are written in place: a packet is large, and copies are expensive.
        let mut transmit = Transmit::default();
        while let Some(payload) = self.carriers.poll_transmit_into(now, &mut transmit) {
            let qp = payload.and_then(|payload| self.qps.get(Token::unpack(payload.token).qp().0));
            transmit.context = qp.map(|pair| pair.context).or_else(|| self.sender(&transmit));
            let Some(payload) = payload else {
                let padded = transmit.payload_len > 0;
                send(&transmit, if padded { Source::Anything } else { Source::Memory(&[]) });
                return true;
            };
            transmit.packet.set_rdma();
            transmit.payload_len = payload.len;
            match self.load(&payload) {
                Load::Memory(header) => {
                    transmit.rdma = Some(header);
                    send(&transmit, Source::Memory(&self.places));
                    return true;
                }
                Load::Inline(header, qp, number) => {
                    transmit.rdma = Some(header);
                    let pair = self.qps.get_mut(qp.0).expect("it was found");
                    let wqe = pair.send.numbered(number).expect("it was found");
                    let bytes = wqe.inline.as_deref().expect("it was found");
                    let from = payload.offset as usize;
                    let piece = &bytes[from..from + usize::from(payload.len)];
                    send(&transmit, Source::Inline(piece));
                    return true;
                }
                load if load.is_discarded(&transmit.packet) => {
                    transmit.rdma = Some(RdmaHeader::default());
                    send(&transmit, Source::Anything);
                    return true;
                }
                Load::Known => unreachable!("it is discarded"),
                Load::Gone(qp, role) => self.on_memory_gone(now, qp, role, &payload),
            }
        }
        false
    }

    /// Returns the context of a packet's connection.
    fn sender(&self, transmit: &Transmit) -> Option<Context> {
        let connection = transmit.connection?;
        let pair = self.connections.get(&connection).and_then(|(qp, _)| self.qps.get(qp.0));
        pair.map(|pair| pair.context).or_else(|| self.datagrams.sender(connection))
    }

    /// Finds the RDMA header and the payload of a packet; places are in `self.places`.
    fn load(&mut self, payload: &Payload) -> Load {
        self.places.clear();
        match Token::unpack(payload.token) {
            Token::Request { qp, number, .. } => self.load_request(qp, number, payload),
            Token::Answer { qp, number } => self.load_answer(qp, number, payload),
            Token::Acknowledge { qp, psn, syndrome } => {
                let acknowledge = RdmaOperation::Acknowledge { syndrome: syndrome.to_byte() };
                let pair = self.qps.get(qp.0);
                let Some(pair) = pair else { return Load::Gone(qp, Role::Responder) };
                Load::Memory(RdmaHeader {
                    destination_qp: U24::truncate(pair.dest_qp()),
                    psn: U24::truncate(psn),
                    ..acknowledge.header()
                })
            }
        }
    }

    fn load_request(&mut self, qp: QueuePairNumber, number: u32, payload: &Payload) -> Load {
        let gone = Load::Gone(qp, Role::Requester);
        // Only datagrams outlive their queue pair, since they share a connection.
        let Some(pair) = self.qps.get_mut(qp.0) else { return Load::Known };
        let (dest_qp, domain) = (pair.dest_qp(), pair.request.domain);
        let own_qkey = pair.attributes.qkey.unwrap_or_default();
        let Some(wqe) = pair.send.numbered(number) else { return Load::Known };
        let is_datagram = wqe.datagram.is_some();
        let header =
            if is_datagram { datagram_header(wqe, qp, own_qkey) } else { wqe.header(dest_qp) };
        if wqe.inline.is_some() {
            return Load::Inline(header, qp, number);
        }
        let who = Accessor { domain, qp: qp.0 };
        let piece = (payload.offset, u32::from(payload.len));
        match scatter(&self.emtt, who, &wqe.sges, piece, Right::LocalRead, &mut self.places) {
            Ok(()) => Load::Memory(header),
            Err(_) if is_datagram => {
                // The connection is shared, so it continues: the datagram is sent without a destination.
                pair.send.finish_number(number, crate::Status::LocalProtection);
                Load::Known
            }
            Err(_) => gone,
        }
    }

    fn load_answer(&mut self, qp: QueuePairNumber, number: u32, payload: &Payload) -> Load {
        let gone = Load::Gone(qp, Role::Responder);
        let Some(pair) = self.qps.get_mut(qp.0) else { return gone };
        let index = number.wrapping_sub(pair.responder.first_answer) as usize;
        let Some(&answer) = pair.responder.answers.get(index) else { return gone };
        let destination_qp = U24::truncate(pair.dest_qp());
        let common = RdmaHeader { destination_qp, ..answer.wire().header() };
        match answer {
            Answer::Atomic { psn, .. } => {
                Load::Memory(RdmaHeader { psn: U24::truncate(psn), ..common })
            }
            Answer::Read { psn, key, address } => {
                let who = Accessor { domain: pair.request.domain, qp: qp.0 };
                let (at, len) = (address.wrapping_add(payload.offset.into()), payload.len.into());
                if len > 0 {
                    match self.emtt.translate(who, key, at, len, Right::RemoteRead) {
                        Ok(place) => self.places.push(place),
                        Err(_) => return gone,
                    }
                }
                Load::Memory(RdmaHeader { psn: U24::truncate(psn), ..common })
            }
        }
    }

    /// Fails a queue pair whose message in flight needs memory that is no longer accessible.
    fn on_memory_gone(&mut self, now: Instant, qp: QueuePairNumber, role: Role, payload: &Payload) {
        if let (Role::Requester, Token::Request { number, .. }) =
            (role, Token::unpack(payload.token))
            && let Some(pair) = self.qps.get_mut(qp.0)
        {
            pair.send.fail_number(number, crate::Status::LocalProtection);
        } else {
            self.events.push_back(crate::Event::QpAccessError { qp });
        }
        self.retire(now, qp);
        self.fail_qp(now, qp);
        self.handle_transport_events(now);
    }

    /// Handles the events of the transport.
    pub(super) fn handle_transport_events(&mut self, now: Instant) {
        while let Some(event) = self.carriers.poll_event() {
            match event {
                TransportEvent::Connected { connection } => self.on_connected(now, connection),
                TransportEvent::Acked { connection, .. }
                    if self.on_datagram_sent(now, connection) => {}
                TransportEvent::Acked { token, .. } => match Token::unpack(token) {
                    token @ Token::Request { .. } => self.on_request_sent(now, token),
                    token => self.on_answer_sent(now, token),
                },
                TransportEvent::Accepted { connection, service: SERVICE } => {
                    self.accept_datagrams(now, connection);
                }
                TransportEvent::Accepted { connection, service } => {
                    self.on_accepted(now, connection, QueuePairNumber(service));
                }
                TransportEvent::Closed { connection, reason } => {
                    self.on_datagrams_closed(now, connection);
                    self.on_closed(now, connection, reason);
                }
                _ => {}
            }
        }
    }

    /// Handles a connection on which a peer's queue pair sends requests.
    fn on_accepted(&mut self, now: Instant, connection: ConnectionId, qp: QueuePairNumber) {
        let from = self.carriers.peer(connection).map(|peer| peer.address);
        let meant = |pair: &QueuePair| pair.receives() && pair.peer() == from;
        if !self.qps.get(qp.0).is_some_and(meant) {
            return self.carriers.close(now, connection);
        }
        // A peer that connects again has abandoned its previous connection.
        self.end_flow(now, qp, Role::Responder);
        let Some(pair) = self.qps.get_mut(qp.0) else { return };
        pair.responder.flow = Some(Flow::new(connection));
        let expected = pair.responder.expected;
        self.connections.insert(connection, (qp, Role::Responder));
        self.acknowledge(now, qp, expected, Syndrome::Ready, None);
    }

    fn on_closed(&mut self, now: Instant, connection: ConnectionId, reason: CloseReason) {
        let Some((qp, role)) = self.connections.remove(&connection) else { return };
        if let Some(pair) = self.qps.get_mut(qp.0) {
            pair.requester.peer_exited |= reason == CloseReason::LinkDown;
        }
        match role {
            Role::Requester => self.on_peer_lost(now, qp, reason),
            Role::Responder => self.end_flow(now, qp, Role::Responder),
        }
    }
}
