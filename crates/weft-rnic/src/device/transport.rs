//! Between the queue pairs and the network: packets in, packets out, time, and what the transport tells.

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

/// A packet to send: its headers, then the RDMA header, then the payload.
#[derive(Clone, Copy, Debug)]
pub struct Transmit {
    /// The peer's address and receive port.
    pub to: SocketAddr,
    /// The link it goes over; `None` for the network.
    pub link: Option<LinkId>,
    /// Of which connection; `None` for an answer that has none.
    pub connection: Option<ConnectionId>,
    /// Whose it is: that of the queue pair that it comes from. `None` for an answer without a connection, and for the last
    /// words of a queue pair that is no more.
    pub context: Option<Context>,
    /// The path it must take: the owner maps it to a UDP source port.
    pub path: PathId,
    /// The transport's headers.
    pub packet: Packet,
    /// What follows them, if they announce it.
    pub rdma: Option<RdmaHeader>,
    /// Bytes of payload after that.
    pub payload_len: u16,
    /// What a packet over a link says besides.
    pub acknowledged: Option<Acknowledgement>,
}

/// A packet as it came over a link.
#[derive(Clone, Copy, Debug)]
pub struct FromLink<'a> {
    /// The transport's headers.
    pub packet: &'a Packet,
    /// What follows them, if they announce it.
    pub rdma: Option<&'a RdmaHeader>,
    /// Bytes of payload after that.
    pub payload_len: u16,
    /// What it says besides.
    pub acknowledged: Option<Acknowledgement>,
}

impl Default for Transmit {
    /// A place for another.
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
    /// Where it goes, and what it says besides; its payload.
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

/// Where the payload of a packet is.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// In pieces of owners' memory, one after the other.
    Memory(&'a [Place]),
    /// Here.
    Inline(&'a [u8]),
    /// Nowhere: a probe's padding, or a repeat that the peer has already and will throw away. Any bytes will do.
    Anything,
}

/// What a departing packet gets beside the transport's headers.
enum Load {
    Memory(RdmaHeader),
    Inline(RdmaHeader, QueuePairNumber, u32),
    /// The peer has it: it said so before the transport did.
    Known,
    /// Its memory is not to be had any more: the connection fails.
    Gone(QueuePairNumber, Role),
}

impl Load {
    /// Whether any bytes will do. Programs may take memory away once the peer has told them that its READ is
    /// done, which the transport need not know yet: it throws the repeat away. A peer that has not read it after
    /// all is told by what it finds: a header that names nobody, which ends the connection.
    const fn goes_as_nothing(&self, packet: &Packet) -> bool {
        let repeat = matches!(packet, Packet::Data(header, _) if header.retransmitted);
        match self {
            Self::Known => true,
            Self::Gone(_, Role::Responder) => repeat,
            _ => false,
        }
    }
}

impl Device {
    /// Takes a packet in: the transport's headers, the RDMA header that follows them if they announce
    /// one, and the length of the payload after that. Payload is placed through `memory` before this
    /// returns, except what is to be held.
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

    /// Likewise one that came over a link. `from` is the peer's address as it says, with which it must be
    /// reachable over this link; its port means nothing.
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

    /// There is a link to a process of this host: a channel that loses, repeats and reorders nothing.
    pub fn link_up(&mut self, now: Instant, link: LinkId) {
        self.carriers.link_up(now, link);
    }

    /// New connections to `peer` (address and receive port) go over this link instead of the network.
    pub fn reach_over(&mut self, peer: SocketAddr, link: LinkId) {
        self.carriers.reach_over(peer, link);
    }

    /// Whether something is to be sent over links.
    pub fn owes_links(&self) -> bool {
        self.carriers.owes_links()
    }

    /// Whether that is more than acknowledgements, which may wait for a message of their own for a while.
    pub fn has_messages_for_links(&self) -> bool {
        self.carriers.has_messages_for_links()
    }

    /// A link has no room for another packet: nothing leaves over it until it is [released](Self::release_link).
    pub fn hold_link(&mut self, link: LinkId) {
        self.carriers.hold_link(link);
    }

    /// A link has room again.
    pub fn release_link(&mut self, link: LinkId) {
        self.carriers.release_link(link);
    }

    /// The host's own port is full, or not any more: while it is, nothing leaves over the network.
    pub fn hold_network(&mut self, held: bool) {
        self.carriers.hold_network(held);
    }

    /// A link is no more: what went over it fails, and peers are reached over the network again.
    pub fn link_down(&mut self, now: Instant, link: LinkId) {
        self.carriers.link_down(link);
        self.handle_transport_events(now);
    }

    /// Does what is due. Call it at or after [`Self::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        self.carriers.handle_timeout(now);
        while let Some(&(until, qp)) = self.waits.first().filter(|(until, _)| *until <= now) {
            self.waits.remove(&(until, qp));
            self.on_waited(now, qp);
        }
        self.handle_transport_events(now);
    }

    /// When [`Self::handle_timeout`] must be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let wait = self.waits.first().map(|(until, _)| *until);
        self.carriers.poll_timeout().into_iter().chain(wait).min()
    }

    /// Hands the next packet that may be sent now to `send`, and where its payload is; false if there is
    /// none. Call until false, or until the owner's budget is spent.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        send: impl FnOnce(&Transmit, Source<'_>),
    ) -> bool {
        if !self.carriers.may_transmit() {
            return false;
        }
        // Headers are written where they stay: a packet is large, and each copy of it costs.
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
                load if load.goes_as_nothing(&transmit.packet) => {
                    transmit.rdma = Some(RdmaHeader::default());
                    send(&transmit, Source::Anything);
                    return true;
                }
                Load::Known => unreachable!("it goes as nothing"),
                Load::Gone(qp, role) => self.on_memory_gone(now, qp, role, &payload),
            }
        }
        false
    }

    /// Returns whose the connection is that a packet is of.
    fn sender(&self, transmit: &Transmit) -> Option<Context> {
        let connection = transmit.connection?;
        let pair = self.connections.get(&connection).and_then(|(qp, _)| self.qps.get(qp.0));
        pair.map(|pair| pair.context).or_else(|| self.datagrams.sender(connection))
    }

    /// What a packet says and carries; its places are in `self.places`.
    fn load(&mut self, payload: &Payload) -> Load {
        self.places.clear();
        match Token::unpack(payload.token) {
            Token::Request { qp, number, .. } => self.load_request(qp, number, payload),
            Token::Answer { qp, number } => self.load_answer(qp, number, payload),
            Token::Acknowledge { qp, psn, syndrome } => {
                let said = RdmaOperation::Acknowledge { syndrome: syndrome.to_byte() };
                let pair = self.qps.get(qp.0);
                let Some(pair) = pair else { return Load::Gone(qp, Role::Responder) };
                Load::Memory(RdmaHeader {
                    destination_qp: U24::truncate(pair.dest_qp()),
                    psn: U24::truncate(psn),
                    ..said.header()
                })
            }
        }
    }

    fn load_request(&mut self, qp: QueuePairNumber, number: u32, payload: &Payload) -> Load {
        let gone = Load::Gone(qp, Role::Requester);
        // Only datagrams outlive their queue pair: they share a connection.
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
                // The connection goes on for others: this datagram goes on as nothing for nobody.
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

    /// Memory that a message under way needs was taken away: what was begun cannot be finished.
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

    /// Sees to everything the transport tells.
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

    /// A peer's queue pair wants to send requests to one of ours.
    fn on_accepted(&mut self, now: Instant, connection: ConnectionId, qp: QueuePairNumber) {
        let from = self.carriers.peer(connection).map(|peer| peer.address);
        let meant = |pair: &QueuePair| pair.receives() && pair.peer() == from;
        if !self.qps.get(qp.0).is_some_and(meant) {
            return self.carriers.close(now, connection);
        }
        // A peer that connects again has given up its former connection.
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
            pair.requester.orphaned |= reason == CloseReason::LinkDown;
        }
        match role {
            Role::Requester => self.on_peer_lost(now, qp, reason),
            Role::Responder => self.end_flow(now, qp, Role::Responder),
        }
    }
}
