//! One host's end of every connection: finds the connection a packet belongs to, sets connections
//! up and tears them down, and takes turns among those that have something to send.

use core::net::SocketAddr;

use alloc::collections::{BTreeMap, VecDeque};

use weft_units::{Instant, Seed, prefetch};
use weft_wire::Packet;

pub use admission::{Admission, Forgotten, Named, SetupFault};
use ids::Connections;
pub use ids::ThreadBits;
use schedule::Schedule;
pub use secret::Secret;
use token::Tokens;
pub use transmit::{Departure, Transmit};

use crate::connection::{Connection, Flow, Identity, PeerKey, Shared, Step};
use crate::path::PathNews;
use crate::{
    ConfigError, DropReason, Event, PlacedError, Stats, SubmitError, TransportConfig, Verdict,
};

mod admission;
mod begin;
mod ending;
mod handshake;
mod ids;
#[cfg(test)]
mod inspect;
mod schedule;
mod secret;
mod token;
mod transmit;

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
    /// Connections that are no more, for owners that ask.
    forgotten: Option<VecDeque<Forgotten>>,
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
            forgotten: None,
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

    /// Lets connections to one address share what they learn of its paths: which are dead, lossy or slow. For
    /// owners that send path `p` of every connection from one source port, or from one for each remainder of
    /// [`Peer::thread_id`] by `groups`, at least one.
    #[must_use]
    pub fn sharing_ports(mut self, groups: u8) -> Self {
        self.shared.peer_paths.share(groups.max(1));
        self
    }

    /// Keeps what it learns of paths for [`poll_path_news`](Self::poll_path_news): for processes with several
    /// endpoints that send from the same source ports.
    #[must_use]
    pub fn keeping_path_news(mut self) -> Self {
        self.shared.peer_paths.keep_news();
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
            Packet::Setup(header) => return self.handle_setup(now, arrival, header, false),
        };
        let slot = match self.find(arrival, cid) {
            Ok(slot) => slot,
            Err(reason) => {
                self.reset(arrival.from, cid, packet);
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

    /// Takes what another endpoint of the process learned of a path.
    pub fn handle_path_news(&mut self, now: Instant, news: &PathNews) {
        let least = self.shared.config.path_down_after;
        self.shared.peer_paths.handle_news(now, news, least);
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

    /// Returns the next finding about a path, for [`handle_path_news`](Self::handle_path_news) of the other
    /// endpoints of the process. One that is dropped costs them no more than finding out by themselves.
    #[inline]
    pub fn poll_path_news(&mut self) -> Option<PathNews> {
        self.shared.peer_paths.poll_news()
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
}
