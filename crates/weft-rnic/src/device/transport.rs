//! Packets, time and transport events: the interface between queue pairs and the network.

use core::net::SocketAddr;

use weft_transport::{
    Arrival, CloseReason, ConnectionId, Event as TransportEvent, LinkId, Verdict,
};
use weft_units::Instant;
use weft_wire::RdmaHeader;

use super::active::ActiveQp;
use super::datagrams::SERVICE;
use super::load::{Load, load};
use super::{Device, ReceivedPacket, Source, Transmit};
use crate::memory::Memory;
use crate::queue_pair::{Flow, Role, Syndrome, Token, ends};
use crate::{Context, Event, Marking, Status};

impl Device {
    /// Handles a packet from the network. Its payload is placed or held through `memory` before this returns.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        received: ReceivedPacket<'_>,
        memory: &mut impl Memory,
    ) {
        let ReceivedPacket { packet, rdma, payload_len, .. } = received;
        let verdict = self.carriers.handle_packet(now, None, arrival, packet, payload_len);
        self.handle_verdict(now, verdict, rdma, memory);
    }

    /// Handles a packet from a link. `from` is the address that the peer states; it must be the one reachable over this
    /// link. Its port is ignored.
    pub fn handle_link_packet(
        &mut self,
        now: Instant,
        link: LinkId,
        from: SocketAddr,
        received: ReceivedPacket<'_>,
        memory: &mut impl Memory,
    ) {
        let arrival = Arrival { from, received_at: now, congestion_experienced: false, hops: 0 };
        let ReceivedPacket { packet, rdma, payload_len, acknowledged } = received;
        if let Some(acknowledged) = acknowledged {
            self.carriers.handle_acknowledged(now, link, from, acknowledged);
            self.handle_transport_events(now);
        }
        let verdict = self.carriers.handle_packet(now, Some(link), &arrival, packet, payload_len);
        self.handle_verdict(now, verdict, rdma, memory);
    }

    /// Passes a packet's payload, if it has any, to its queue pair.
    fn handle_verdict(
        &mut self,
        now: Instant,
        verdict: Verdict,
        rdma: Option<&RdmaHeader>,
        memory: &mut impl Memory,
    ) {
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
    pub fn route_over(&mut self, peer: SocketAddr, link: LinkId) {
        self.carriers.route_over(peer, link);
    }

    /// Returns `true` if packets wait to be sent over links.
    pub fn has_packets_for_links(&self) -> bool {
        self.carriers.has_packets_for_links()
    }

    /// Returns `true` if messages wait to be sent over links. Acknowledgements alone do not count: they may wait until
    /// a message carries them.
    pub fn has_messages_for_links(&self) -> bool {
        self.carriers.has_messages_for_links()
    }

    /// Pauses a link that has no room for another packet, until [`resume_link`](Self::resume_link).
    pub fn pause_link(&mut self, link: LinkId) {
        self.carriers.pause_link(link);
    }

    /// Resumes a link that has room again.
    pub fn resume_link(&mut self, link: LinkId) {
        self.carriers.resume_link(link);
    }

    /// Pauses transmission to the network if `held`, as the host's port is full; resumes it otherwise.
    pub fn set_network_paused(&mut self, held: bool) {
        self.carriers.set_network_paused(held);
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
            if let Some(mut active) = self.active(qp) {
                active.on_wait_expired(now);
            }
        }
        self.handle_transport_events(now);
    }

    /// Returns the time at which [`Self::handle_timeout`] must be called next; `None` if no timer is set.
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
            let Some(payload) = payload else {
                (transmit.context, transmit.marking) = self.sender(&transmit);
                let padded = transmit.payload_len > 0;
                send(&transmit, if padded { Source::Anything } else { Source::Memory(&[]) });
                return true;
            };
            let token = Token::unpack(payload.token);
            let pair = self.qps.get_mut(token.qp().0);
            (transmit.context, transmit.marking) = match &pair {
                Some(pair) => (Some(pair.context), pair.marking()),
                None => {
                    let sender = transmit.connection.and_then(|id| self.datagrams.sender(id));
                    (sender, Marking::default())
                }
            };
            transmit.packet.set_rdma();
            transmit.payload_len = payload.len;
            match load(pair, token, &payload, &self.emtt, &mut self.places) {
                Load::Ready(header, source) => {
                    transmit.rdma = Some(header);
                    send(&transmit, source);
                    return true;
                }
                load if load.is_discarded(&transmit.packet) => {
                    transmit.rdma = Some(RdmaHeader::default());
                    send(&transmit, Source::Anything);
                    return true;
                }
                Load::Known => unreachable!("it is discarded"),
                Load::Gone(role) => self.on_memory_gone(now, token, role),
            }
        }
        false
    }

    /// Returns the context of a packet's connection, and the labels of its queue pair.
    fn sender(&self, transmit: &Transmit) -> (Option<Context>, Marking) {
        let Some(connection) = transmit.connection else { return (None, Marking::default()) };
        let pair = self.connections.get(&connection).and_then(|(qp, _)| self.qps.get(qp.0));
        match pair {
            Some(pair) => (Some(pair.context), pair.marking()),
            None => (self.datagrams.sender(connection), Marking::default()),
        }
    }

    /// Fails a queue pair whose message in flight needs memory that is no longer accessible.
    fn on_memory_gone(&mut self, now: Instant, token: Token, role: Role) {
        let qp = token.qp();
        match self.active(qp) {
            Some(mut active) => active.on_memory_gone(now, token, role),
            None => self.events.push_back(Event::QpAccessError { qp }),
        }
        self.handle_transport_events(now);
    }

    /// Handles the events of the transport.
    pub(super) fn handle_transport_events(&mut self, now: Instant) {
        while let Some(event) = self.carriers.poll_event() {
            match event {
                TransportEvent::Connected { connection } => self.on_connected(now, connection),
                TransportEvent::Acked { connection, .. }
                    if self.on_datagram_sent(now, connection) => {}
                TransportEvent::Acked { token, .. } => self.on_acked(now, Token::unpack(token)),
                TransportEvent::Accepted { connection, service: SERVICE } => {
                    self.accept_datagrams(now, connection);
                }
                TransportEvent::Accepted { connection, service } => {
                    self.on_accepted(now, connection, service);
                }
                TransportEvent::Closed { connection, reason } => {
                    self.on_datagrams_closed(now, connection);
                    self.on_closed(now, connection, reason);
                }
                _ => {}
            }
        }
    }

    /// Handles the arrival of a queue pair's message at the peer.
    fn on_acked(&mut self, now: Instant, token: Token) {
        let Some(mut active) = self.active(token.qp()) else { return };
        match token {
            Token::Request { round, number, .. } => active.on_request_sent(now, round, number),
            Token::Answer { .. } => active.on_answer_sent(),
            Token::Acknowledge { .. } => active.on_acknowledgement_sent(now),
        }
    }

    /// Handles a connection on which a peer's queue pair sends requests.
    fn on_accepted(&mut self, now: Instant, connection: ConnectionId, service: u64) {
        let from = self.carriers.peer(connection).map(|peer| peer.address);
        let (requester, qp) = ends(service);
        let acceptable = self.active(qp).filter(|active| {
            let pair = &*active.pair;
            pair.receives() && pair.peer() == from && pair.dest_qp() == requester.0
        });
        match acceptable {
            Some(mut active) => active.on_accepted(now, connection),
            None => self.carriers.close(now, connection),
        }
    }

    /// Handles the end of a queue pair's connection.
    fn on_closed(&mut self, now: Instant, connection: ConnectionId, reason: CloseReason) {
        let Some((qp, role)) = self.connections.remove(&connection) else { return };
        let Some(mut active) = self.active(qp) else { return };
        active.pair.requester.peer_exited |= reason == CloseReason::LinkDown;
        match role {
            Role::Requester => active.on_peer_lost(now, reason),
            Role::Responder => active.end_flow(now, Role::Responder),
        }
    }
}

impl ActiveQp<'_> {
    fn on_memory_gone(&mut self, now: Instant, token: Token, role: Role) {
        match (role, token) {
            (Role::Requester, Token::Request { number, .. }) => {
                self.pair.send.fail_number(number, Status::LocalProtection);
            }
            _ => self.completing.events.push_back(Event::QpAccessError { qp: self.qp }),
        }
        self.retire(now);
        self.fail(now);
    }

    fn on_accepted(&mut self, now: Instant, connection: ConnectionId) {
        // A peer that connects again has abandoned its previous connection.
        self.end_flow(now, Role::Responder);
        self.prepare_connection(connection);
        self.pair.responder.flow = Some(Flow::new(connection));
        self.connections.insert(connection, (self.qp, Role::Responder));
        self.acknowledge(now, self.pair.responder.expected, Syndrome::Ready, None);
    }
}
