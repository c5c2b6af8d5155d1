//! One host's end of every connection: finds the connection a packet belongs to, sets connections
//! up and tears them down, and takes turns among those that have something to send.

use core::net::SocketAddr;

use alloc::collections::{BTreeMap, VecDeque};

use weft_units::{Instant, Seed, prefetch};
use weft_wire::{Packet, SetupHeader, SetupKind, Terms};

use ids::Connections;
pub use ids::ThreadBits;
use schedule::Schedule;
use secret::Purpose;
pub use secret::Secret;
use token::Tokens;

use crate::connection::{Connection, Flow, Identity, Origin, PeerKey, Shared, Step};
use crate::path::PathId;
use crate::{
    CloseReason, ConfigError, ConnectError, DropReason, Event, PlacedError, Stats, SubmitError,
    TransportConfig, Verdict,
};

mod handshake;
mod ids;
mod schedule;
mod secret;
mod token;

/// Names a connection of one endpoint. It is the 32-bit CID that travels; a new connection never
/// reuses an id soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u32);

/// How an endpoint behaves.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// How its connections behave.
    pub transport: TransportConfig,
    /// UDP port on which this endpoint receives; peers send there.
    pub receive_port: u16,
    /// This endpoint's thread, told to peers (BIFROST 5.2).
    pub thread_id: u8,
    /// Whether peers may connect.
    pub accept: bool,
    /// Connections at most, at most 2^24. Fewer make their ids harder to guess
    /// (`docs/design/connections.md`).
    pub max_connections: u32,
}

/// A message to carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Comes back in [`Event::Sent`] and in every [`Payload`].
    pub token: u64,
    /// The owner's operation; told to the peer's owner.
    pub opcode: u8,
    /// What else the owner tells the peer's with every packet of it.
    pub tag: u16,
    /// Length, bytes. Zero is a message too.
    pub length: u32,
}

/// How a packet arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Where it came from; the port is the peer's entropy, not where it receives.
    pub from: SocketAddr,
    /// When the NIC (or the kernel) had it: t2 of data, t4 of ACKs (BIFROST, appendix D).
    pub received_at: Instant,
    /// Whether it carries the congestion-experienced mark (RFC 3168).
    pub congestion_experienced: bool,
    /// Hops it passed, from its TTL; zero where unknown.
    pub hops: u8,
}

/// A packet to send.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Transmit {
    /// The peer's address and receive port.
    pub to: SocketAddr,
    /// Of which connection; `None` for an answer that has none.
    pub connection: Option<ConnectionId>,
    /// The path it must take: the owner maps it to a UDP source port.
    pub path: PathId,
    /// The payload that follows, if any.
    pub payload: Option<Payload>,
    /// Its headers.
    pub packet: Packet,
}

/// A [`Transmit`] whose headers are where the owner wanted them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The peer's address and receive port.
    pub to: SocketAddr,
    /// Of which connection; `None` for an answer that has none.
    pub connection: Option<ConnectionId>,
    /// The path it must take: the owner maps it to a UDP source port.
    pub path: PathId,
    /// The payload that follows, if any.
    pub payload: Option<Payload>,
}

/// What a peer said of itself when a connection to it was set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address and the port it receives this connection's packets on.
    pub address: SocketAddr,
    /// Which of its threads that is ([`EndpointConfig::thread_id`]): owners with several give
    /// connections that must stay together to one.
    pub thread_id: u8,
    /// Paths it spreads its packets over.
    pub paths: u16,
}

/// A piece of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The message's token.
    pub token: u64,
    /// Where the piece begins, bytes.
    pub offset: u32,
    /// How long it is, bytes.
    pub len: u16,
}

/// One host's end of every connection.
#[derive(Debug)]
pub struct Endpoint {
    shared: Shared,
    connections: Connections,
    by_peer: BTreeMap<PeerKey, u32>,
    /// Connections that may have something to send, in turn.
    ready: VecDeque<u32>,
    /// Packets the connection at the front of `ready` has sent in its turn.
    turn: usize,
    /// When to look at which connection: at the latest at its earliest deadline.
    schedule: Schedule,
    /// Answers that belong to no connection.
    answers: VecDeque<Transmit>,
    tokens: Tokens,
    accept: bool,
    seed: Seed,
    secret: Secret,
    /// Connections made.
    made: u64,
    /// Where new connections begin to number their packets; `None` draws.
    first_psn: Option<u32>,
}

/// Connections an endpoint may hold at most.
const MOST_CONNECTIONS: u32 = 1 << 24;

impl Endpoint {
    /// An endpoint with no connections. `seed` decides which paths its packets take, `secret` its
    /// connection ids, first sequence numbers and proofs of address: on a real network both come
    /// from the operating system.
    ///
    /// # Errors
    /// A field of the configuration is out of its range.
    pub fn new(config: EndpointConfig, seed: Seed, secret: Secret) -> Result<Self, ConfigError> {
        config.transport.validate()?;
        let limit = config.max_connections;
        if !(1..=MOST_CONNECTIONS).contains(&limit) {
            let expected = "1 to 16777216";
            return Err(ConfigError { field: "max_connections", got: limit.into(), expected });
        }
        let identity = Identity { receive_port: config.receive_port, thread_id: config.thread_id };
        Ok(Self {
            shared: Shared::new(config.transport, identity, seed),
            connections: Connections::new(limit, secret),
            by_peer: BTreeMap::new(),
            ready: VecDeque::new(),
            turn: 0,
            schedule: Schedule::new(),
            answers: VecDeque::new(),
            tokens: Tokens::new(&secret),
            accept: config.accept,
            seed,
            secret,
            made: 0,
            first_psn: None,
        })
    }

    /// Connections made from here on number their packets from `psn` instead of from a random
    /// number. For tests of what happens when the numbers wrap, which chance alone would not reach:
    /// numbers that can be guessed make packets easier to forge.
    pub fn number_packets_from(&mut self, psn: u32) {
        self.first_psn = Some(psn);
    }

    /// Leaves connection ids from `first` on to others, as a [`Direct`](crate::Direct) beside it. `first`
    /// is at least half of all numbers.
    #[must_use]
    pub fn leaving_ids(mut self, first: u32) -> Self {
        debug_assert!(first >= 1 << 31, "each slot must have ids left");
        self.connections.end_at(first - 1);
        self
    }

    /// Begins the ids of all connections with this endpoint's [`thread_id`](EndpointConfig::thread_id),
    /// for hosts where several threads receive on one port.
    ///
    /// # Errors
    /// The thread does not fit those bits, or too few others are left: `max_connections` times the threads
    /// may be 2^24.
    pub fn naming_its_thread(mut self, bits: ThreadBits) -> Result<Self, ConfigError> {
        let thread = self.shared.identity.thread_id;
        if self.connections.name_thread(thread, bits) {
            return Ok(self);
        }
        let expected = "a thread of those counted, and 2^24 connections of all at most";
        Err(ConfigError { field: "thread_id", got: thread.into(), expected })
    }

    // Commands from the owner.

    /// Asks `peer` (address and receive port) for a connection. `Connected` or `Closed` follows.
    ///
    /// # Errors
    /// The endpoint holds as many as it may.
    pub fn connect(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        service: u32,
    ) -> Result<ConnectionId, ConnectError> {
        let slot = self.begin(now, peer, service)?;
        self.settle(now, slot);
        Ok(self.connection(slot).id)
    }

    /// Joins two endpoints without packets, as when the ends exchanged ids over another channel
    /// (the way of RDMA connection managers). The addresses are their receive addresses. No events
    /// follow.
    ///
    /// # Errors
    /// One of them holds as many as it may.
    pub fn join(
        now: Instant,
        a: (&mut Self, SocketAddr),
        b: (&mut Self, SocketAddr),
    ) -> Result<(ConnectionId, ConnectionId), ConnectError> {
        let (a, a_at) = a;
        let (b, b_at) = b;
        let a_slot = a.begin(now, b_at, 0)?;
        let b_slot = b.begin(now, a_at, 0)?;
        let (a_offer, a_terms) = a.offer(a_slot);
        let (b_offer, b_terms) = b.offer(b_slot);
        a.agree(now, a_slot, &b_offer, &b_terms);
        b.agree(now, b_slot, &a_offer, &a_terms);
        Ok((ConnectionId(a_offer.local_cid), ConnectionId(b_offer.local_cid)))
    }

    /// Queues a message on a connection that is set up.
    ///
    /// # Errors
    /// See [`SubmitError`].
    pub fn submit(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        message: Message,
    ) -> Result<(), SubmitError> {
        let slot = self.connections.find(connection.0).ok_or(SubmitError::UnknownConnection)?;
        let state = self.connections.get_mut(slot).expect("found just now");
        state.submit(now, message, &mut self.shared)?;
        self.settle(now, slot);
        Ok(())
    }

    /// The payload of packet `psn` is where [`Verdict::Place`] said; it may be acknowledged.
    ///
    /// # Errors
    /// See [`PlacedError`].
    #[inline]
    pub fn placed(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        psn: u32,
    ) -> Result<(), PlacedError> {
        let slot = self.connections.find(connection.0).ok_or(PlacedError::UnknownConnection)?;
        let state = self.connections.get_mut(slot).expect("found just now");
        state.handle_placed(now, psn, &mut self.shared)?;
        self.settle(now, slot);
        Ok(())
    }

    /// There is no room for packet `psn`: it is as if it had been lost on its way, and the peer sends it
    /// again (BIFROST, section 4.3: reliability covers the guest's queue).
    ///
    /// # Errors
    /// See [`PlacedError`].
    pub fn decline(&mut self, connection: ConnectionId, psn: u32) -> Result<(), PlacedError> {
        let slot = self.connections.find(connection.0).ok_or(PlacedError::UnknownConnection)?;
        let state = self.connections.get_mut(slot).expect("found just now");
        state.handle_declined(psn, &mut self.shared)
    }

    /// Packet `psn` was thrown away because its sender is faster than it may be: it is acknowledged and
    /// marked as congested, so that it does not come again and the peer slows down (BIFROST,
    /// section 7.1). Its message is delivered all the same; what is missing of it the owner knows.
    ///
    /// # Errors
    /// See [`PlacedError`].
    pub fn shed(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        psn: u32,
    ) -> Result<(), PlacedError> {
        let slot = self.connections.find(connection.0).ok_or(PlacedError::UnknownConnection)?;
        let state = self.connections.get_mut(slot).expect("found just now");
        state.handle_shed(now, psn, &mut self.shared)?;
        self.settle(now, slot);
        Ok(())
    }

    /// Ends a connection and tells the peer; what was not acknowledged may or may not arrive.
    /// `Closed` follows. An id that means nothing is ignored.
    pub fn close(&mut self, now: Instant, connection: ConnectionId) {
        if let Some(slot) = self.connections.find(connection.0) {
            self.connection(slot).closing = Some(CloseReason::Local);
            self.settle(now, slot);
        }
    }

    // Inputs from the network and the clock.

    /// Takes a packet in. `payload_len` is the number of bytes after its headers.
    #[inline]
    pub fn handle_packet(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet,
        payload_len: u16,
    ) -> Verdict {
        let cid = match packet {
            Packet::Data(header, _) => header.destination_cid,
            Packet::Ack(header) => header.destination_cid,
            Packet::Setup(header) => return self.handle_setup(now, arrival, header),
        };
        let slot = match self.find(arrival, cid) {
            Ok(slot) => slot,
            Err(reason) => {
                self.reset(arrival.from, cid);
                return self.shared.refuse(reason);
            }
        };
        let connection = self.connections.get_mut(slot).expect("found just now");
        let verdict = connection.handle_packet(now, arrival, packet, payload_len, &mut self.shared);
        self.settle(now, slot);
        verdict
    }

    /// Begins to fetch what [`Self::look_ahead`] reads to find connections, and when the next deadline
    /// is.
    #[inline]
    pub fn prefetch_tables(&self) {
        self.connections.look_ahead();
        self.schedule.look_ahead();
        if let Some(slot) = self.ready.front() {
            prefetch(slot);
        }
    }

    /// Begins to fetch what [`Self::handle_packet`] will need for these packets, and
    /// [`Self::poll_transmit`] for the next. Changes nothing: owners of many endpoints call it for
    /// one that will soon be busy, each [`Step`] in its turn with other work between, and need not
    /// wait for memory.
    #[inline]
    pub fn look_ahead<'a>(&self, packets: impl Iterator<Item = &'a Packet>, step: Step) {
        for packet in packets {
            let cid = match packet {
                Packet::Data(header, _) => header.destination_cid,
                Packet::Ack(header) => header.destination_cid,
                Packet::Setup(_) => continue,
            };
            // Fetching a connection again costs less than guessing wrong whether it is another one.
            if let Some(connection) = self.connections.guess(cid) {
                connection.look_ahead(packet, step);
            }
        }
        if let Some(connection) = self.ready.front().and_then(|&slot| self.connections.get(slot)) {
            connection.look_ahead_to_transmit(step);
        }
    }

    /// Does what is due. Call it at or after [`Self::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, slot)) = self.schedule.pop_due(now) {
            let Some(connection) = self.connections.get_mut(slot) else { continue };
            // Entries of a connection that was rescheduled, or of its slot's former owner.
            if connection.scheduled != at {
                continue;
            }
            connection.scheduled = Instant::FAR_FUTURE;
            connection.handle_timeout(now, &mut self.shared);
            self.settle(now, slot);
        }
    }

    // Outputs.

    /// Whether [`Self::poll_transmit`] might give a packet; if not, it need not be asked.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        !self.ready.is_empty() || !self.answers.is_empty()
    }

    /// Connections that may have something to send, ACKs included: the last of them is served after as many
    /// turns. Owners with thousands of connections take no more messages while that is many.
    #[inline]
    pub fn wanting_to_send(&self) -> usize {
        self.ready.len()
    }

    /// The next packet to send, if anything may be sent now. Call until `None`, or until the
    /// owner's budget is spent; connections take turns of one spray unit.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        let mut packet = Packet::default();
        let Departure { to, connection, path, payload } =
            self.poll_transmit_into(now, &mut packet)?;
        Some(Transmit { to, connection, path, payload, packet })
    }

    /// Likewise with the headers put into `packet`: with hundreds of thousands of them a second,
    /// each time they are passed on costs.
    #[inline]
    pub fn poll_transmit_into(&mut self, now: Instant, packet: &mut Packet) -> Option<Departure> {
        let mut departure = None;
        self.poll_burst(now, 1, packet, |only, _| departure = Some(*only));
        departure
    }

    /// Hands the packets that may be sent now to `send`, at most `most` of them, and says how many
    /// there were. They are what [`Self::poll_transmit_into`] would say in turn, but what stays the
    /// same from packet to packet is asked for once. Each one's headers are put into `packet`.
    #[inline]
    pub fn poll_burst(
        &mut self,
        now: Instant,
        most: usize,
        packet: &mut Packet,
        mut send: impl FnMut(&Departure, &Packet),
    ) -> usize {
        let mut sent = 0;
        while sent < most {
            if let Some(answer) = self.answers.pop_front() {
                let Transmit { to, connection, path, payload, .. } = answer;
                *packet = answer.packet;
                send(&Departure { to, connection, path, payload }, packet);
                sent += 1;
                continue;
            }
            let Some(&slot) = self.ready.front() else { break };
            let connection = self.connections.get_mut(slot);
            let Some(connection) = connection.filter(|connection| connection.queued) else {
                self.end_turn();
                continue;
            };
            let unit = usize::from(self.shared.config.spray_unit);
            let room = (unit - self.turn).min(most - sent);
            let burst = connection.poll_burst(now, room, &mut self.shared, packet, &mut send);
            sent += burst;
            self.turn += burst;
            if burst < room {
                connection.queued = false;
                self.end_turn();
            } else if self.turn == unit {
                self.end_turn();
                self.ready.push_back(slot);
            }
            self.reschedule(slot);
        }
        sent
    }

    /// Like [`Self::poll_transmit_into`] for an owner whose port must hold payload back (priority flow
    /// control): only what carries none.
    pub fn poll_control_into(&mut self, now: Instant, packet: &mut Packet) -> Option<Departure> {
        if let Some(answer) = self.answers.pop_front() {
            let Transmit { to, connection, path, payload, .. } = answer;
            *packet = answer.packet;
            return Some(Departure { to, connection, path, payload });
        }
        let (connections, shared) = (&mut self.connections, &mut self.shared);
        let (slot, departure) = self.ready.iter().find_map(|&slot| {
            let connection = connections.get_mut(slot).filter(|connection| connection.queued)?;
            let path = connection.poll_control(now, shared, packet)?;
            Some((slot, connection.departure(path)))
        })?;
        self.settle(now, slot);
        Some(departure)
    }

    /// When [`Self::handle_timeout`] must be called next. It may turn out that nothing was due.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.schedule.next()
    }

    /// The next thing that happened.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    // Getters.

    /// What was counted.
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// How its connections behave.
    pub fn config(&self) -> &TransportConfig {
        &self.shared.config
    }

    /// Who is at the other end of a connection; `None` until it is set up.
    pub fn peer(&self, connection: ConnectionId) -> Option<Peer> {
        let slot = self.connections.find(connection.0)?;
        self.connections.get(slot).filter(|connection| connection.is_established()).map(
            |connection| Peer {
                address: connection.peer,
                thread_id: connection.peer_thread,
                paths: connection.peer_paths,
            },
        )
    }

    /// What a connection's payload went through; `None` when it is gone.
    pub fn flow(&self, connection: ConnectionId) -> Option<Flow<'_>> {
        let slot = self.connections.find(connection.0)?;
        self.connections.get(slot).map(Connection::flow)
    }

    /// Connections held, in any state.
    pub fn connections(&self) -> u32 {
        self.connections.len()
    }

    // Inside.

    fn connection(&mut self, slot: u32) -> &mut Connection {
        self.connections.get_mut(slot).expect("the caller found this slot")
    }

    /// The slot of the connection a packet names, if the packet came from its peer's address.
    #[inline]
    fn find(&self, arrival: &Arrival, cid: u32) -> Result<u32, DropReason> {
        let slot = self.connections.find(cid).ok_or(DropReason::UnknownConnection)?;
        let peer = self.connections.get(slot).expect("found just now").peer;
        if peer.ip() == arrival.from.ip() { Ok(slot) } else { Err(DropReason::UnknownConnection) }
    }

    fn next_origin(&mut self) -> Origin {
        self.made += 1;
        let drawn = || self.secret.draw_u32(Purpose::FirstPsn, self.made);
        Origin {
            seed: self.seed.child("connection", self.made),
            first_psn: self.first_psn.unwrap_or_else(drawn),
        }
    }

    fn begin(&mut self, now: Instant, peer: SocketAddr, service: u32) -> Result<u32, ConnectError> {
        let origin = self.next_origin();
        let limit = self.connections.limit();
        self.connections
            .insert(|id| Connection::requesting(id, peer, service, origin, now))
            .ok_or(ConnectError::TooManyConnections { limit })
    }

    fn offer(&self, slot: u32) -> (SetupHeader, Terms) {
        let connection = self.connections.get(slot).expect("the caller made it");
        let terms = connection.terms(&self.shared);
        (connection.setup_header(SetupKind::Accept, Some(terms), &self.shared), terms)
    }

    fn agree(&mut self, now: Instant, slot: u32, offer: &SetupHeader, theirs: &Terms) {
        let connection = self.connections.get_mut(slot).expect("the caller made it");
        connection.joined(now, offer, theirs, &self.shared.config);
        self.by_peer.insert(connection.peer_key(), slot);
        self.settle(now, slot);
    }

    fn end_turn(&mut self) {
        self.turn = 0;
        self.ready.pop_front();
    }

    /// After anything happened to a connection: end it if it is closing, let it send if it may,
    /// and see to its timers.
    #[inline]
    fn settle(&mut self, now: Instant, slot: u32) {
        let connection = self.connections.get_mut(slot).expect("the caller found this slot");
        if let Some(reason) = connection.closing {
            return self.retire(now, slot, reason);
        }
        if !connection.queued && connection.wants_transmit(now) {
            connection.queued = true;
            self.ready.push_back(slot);
        }
        self.reschedule(slot);
    }

    /// Makes sure the connection is looked at by its earliest deadline.
    #[inline]
    fn reschedule(&mut self, slot: u32) {
        let connection = self.connections.get_mut(slot).expect("the caller found this slot");
        let at = connection.timers.next();
        if at < connection.scheduled {
            connection.scheduled = at;
            self.schedule.push(at, slot, &self.connections);
        }
    }

    /// Drops a connection, telling the peer unless the peer knows: what was placed, then that it ends.
    fn retire(&mut self, now: Instant, slot: u32, reason: CloseReason) {
        let Some(mut connection) = self.connections.remove(slot) else { return };
        let peer_knows = matches!(reason, CloseReason::Peer | CloseReason::Reset);
        if let Some(close) = connection.close_packet(&self.shared).filter(|_| !peer_knows) {
            // By one path, where neither overtakes the other.
            let (to, path) = (connection.peer, self.shared.any_path());
            let ack = connection.last_ack(now, &mut self.shared).map(Packet::Ack);
            let connection = Some(connection.id);
            self.answers.extend(ack.into_iter().chain([close]).map(|packet| Transmit {
                connection,
                to,
                path,
                packet,
                payload: None,
            }));
        }
        connection.release(&mut self.shared);
        self.by_peer.remove(&connection.peer_key());
        self.shared.events.push_back(Event::Closed { connection: connection.id, reason });
    }
}

/// What tests look at.
#[cfg(test)]
impl Endpoint {
    fn state(&self, connection: ConnectionId) -> &Connection {
        let slot = self.connections.find(connection.0).expect("the test holds it");
        self.connections.get(slot).expect("found just now")
    }

    pub(crate) fn is_idle(&self, connection: ConnectionId) -> bool {
        self.state(connection).holds_no_memory()
    }

    pub(crate) fn holds_packets(&self, connection: ConnectionId) -> bool {
        self.state(connection).holds_packets()
    }

    /// Bytes of a connection that holds nothing, and of all entries in the schedule.
    pub(crate) fn bytes_at_rest(&self) -> (usize, usize) {
        (size_of::<Connection>(), self.schedule.len() * size_of::<(Instant, u32)>())
    }

    pub(crate) fn next_psn(&self, connection: ConnectionId) -> u32 {
        self.state(connection).next_psn()
    }

    pub(crate) fn next_expected(&self, connection: ConnectionId) -> u32 {
        self.state(connection).receiver_base()
    }
}
