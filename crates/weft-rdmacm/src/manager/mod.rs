//! The connection manager of a process, without sockets and without a clock: commands of the program and datagrams go
//! in; datagrams, events and a deadline come out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use weft_units::Instant;

use crate::message::{Body, CommunicationId, Message, Offer, Reason};

mod connection;
mod numbers;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;

use connection::{Connection, Side, State};
use numbers::UnpredictableNumbers;

/// The number of copies of a request, a third of a second of them, that a port without a listener leaves unanswered:
/// programs (perftest's `-R`) listen, close, and listen again, and their clients are fast.
const MAX_UNANSWERED_COPIES: u8 = 3;

/// A port space: each has its own ports and its own handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Space {
    /// Ends connect queue pairs with each other (IBTA, section 12.9).
    Connected,
    /// One end requests the number of the other's datagram queue pair (IBTA, section 12.11).
    Datagram,
}

/// The ID of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner(pub(crate) usize);

/// The addresses of a connection's ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AddressPair {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

/// The rejection of a request or a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: Reason,
    pub(crate) private_data: Vec<u8>,
}

impl Rejection {
    /// The owner's rejection, without private data.
    pub(crate) const CONSUMER: Self = Self { reason: Reason::CONSUMER, private_data: Vec::new() };
}

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transmit {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

/// An event of a connection for its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A request to connect to a listener: accept or reject it.
    Requested {
        listener: Owner,
        local: SocketAddr,
        remote: SocketAddr,
        offer: Offer,
    },
    /// The other end accepted the request: become ready, or reject.
    Response(Offer),
    /// The other end's queue pair is ready.
    Established,
    /// The queue pair behind a datagram service is known.
    Resolved(Offer),
    Rejected {
        reason: Reason,
        private_data: Vec<u8>,
    },
    /// The other end does not answer, or the service does not exist.
    Unreachable {
        status: i32,
    },
    Disconnected {
        status: i32,
    },
}

#[derive(Debug, Default)]
struct Outbox {
    transmits: VecDeque<Transmit>,
    events: VecDeque<(CommunicationId, Event)>,
}

#[derive(Debug)]
struct Listening {
    owner: Owner,
    /// The maximum number of requests that wait for the owner's answer.
    backlog: u32,
}

/// The other end of a connection in its own terms: every copy of a request has the same.
type Peer = (AddressPair, CommunicationId);

/// All connections and listeners of a process.
#[derive(Debug)]
pub(crate) struct Manager {
    connections: BTreeMap<CommunicationId, Connection>,
    requested: BTreeMap<Peer, CommunicationId>,
    listeners: BTreeMap<(Space, SocketAddr), Listening>,
    /// Number of requests that wait for each owner's answer.
    waiting: BTreeMap<Owner, u32>,
    deadlines: BTreeSet<(Instant, CommunicationId)>,
    /// Number of connections of each address.
    users: BTreeMap<SocketAddr, u32>,
    out: Outbox,
    /// The IDs and the first packet sequence numbers. Peers see those of their own connections.
    numbers: UnpredictableNumbers,
}

impl Manager {
    /// Creates a manager. The `key` must be random and known to nobody else.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self {
            connections: BTreeMap::new(),
            requested: BTreeMap::new(),
            listeners: BTreeMap::new(),
            waiting: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            users: BTreeMap::new(),
            out: Outbox::default(),
            numbers: UnpredictableNumbers::new(key),
        }
    }

    /// Draws a first packet sequence number.
    pub(crate) fn draw_psn(&mut self) -> u32 {
        self.numbers.next_u32() >> 8
    }

    /// Returns `true` if a connection sends from this address, even if only to report its end.
    pub(crate) fn uses(&self, local: SocketAddr) -> bool {
        self.users.contains_key(&local)
    }

    /// Listens at an address: `owner` gets its requests, of which at most `backlog` wait for an answer at a time.
    pub(crate) fn listen(&mut self, space: Space, local: SocketAddr, owner: Owner, backlog: u32) {
        self.listeners.insert((space, local), Listening { owner, backlog });
    }

    /// Removes all listeners of an owner.
    pub(crate) fn stop_listening(&mut self, owner: Owner) {
        self.listeners.retain(|_, listening| listening.owner != owner);
    }

    /// Requests a connection. Returns the ID of this end's side.
    pub(crate) fn connect(
        &mut self,
        now: Instant,
        space: Space,
        addresses: AddressPair,
        offer: Offer,
    ) -> CommunicationId {
        let own = self.draw_id();
        let peer = CommunicationId::NONE;
        self.insert(Connection::new(space, Side::Active, addresses, own, peer));
        self.with(own, |connection, out| connection.request(offer, now, out));
        own
    }

    /// Accepts the request. Returns `true` if there was one.
    pub(crate) fn accept(&mut self, now: Instant, id: CommunicationId, offer: Offer) -> bool {
        self.with(id, |connection, out| connection.accept(offer, now, out)).unwrap_or(false)
    }

    /// Rejects the request or the reply. Returns `true` if there was one.
    pub(crate) fn reject(
        &mut self,
        now: Instant,
        id: CommunicationId,
        rejection: Rejection,
    ) -> bool {
        self.with(id, |connection, out| connection.reject(rejection, now, out)).unwrap_or(false)
    }

    /// Confirms the reply: the queue pair is ready. Returns `true` if there was a reply.
    pub(crate) fn ready(&mut self, now: Instant, id: CommunicationId) -> bool {
        self.with(id, |connection, out| connection.ready(now, out)).unwrap_or(false)
    }

    /// Records that the queue pair has received, so the other end is ready. Returns `true` if that is new.
    pub(crate) fn notify(&mut self, now: Instant, id: CommunicationId) -> bool {
        self.with(id, |connection, out| connection.notify(now, out)).unwrap_or(false)
    }

    /// Ends the connection. Returns `true` if there was one.
    pub(crate) fn disconnect(&mut self, now: Instant, id: CommunicationId) -> bool {
        self.with(id, |connection, out| connection.disconnect(now, out)).unwrap_or(false)
    }

    /// Drops the owner of a connection; the other end gets a message that it is over.
    pub(crate) fn forget(&mut self, now: Instant, id: CommunicationId) {
        self.with(id, |connection, out| connection.forget(now, out));
        self.out.events.retain(|(about, _)| *about != id);
    }

    /// Ends every connection and notifies the other ends.
    pub(crate) fn forget_all(&mut self, now: Instant) {
        let ids: Vec<_> = self.connections.keys().copied().collect();
        ids.into_iter().for_each(|id| self.forget(now, id));
    }

    /// Handles a datagram that arrived at one of this process's addresses.
    pub(crate) fn handle_datagram(&mut self, now: Instant, addresses: AddressPair, bytes: &[u8]) {
        let Some(message) = Message::parse(bytes) else { return };
        let peer = (addresses, message.from);
        if message.to == CommunicationId::NONE {
            match self.requested.get(&peer) {
                Some(&id) => {
                    self.with(id, |connection, out| connection.handle(message, now, out));
                }
                None => self.handle_request(peer, message),
            }
            return;
        }
        let is_the_peer = |connection: &Connection| {
            connection.addresses == addresses
                && (connection.peer == message.from || connection.peer == CommunicationId::NONE)
        };
        if self.connections.get(&message.to).is_some_and(is_the_peer) {
            self.with(message.to, |connection, out| connection.handle(message, now, out));
        } else {
            self.handle_unknown(addresses, &message);
        }
    }

    /// Answers a message about an unknown connection by the message that the connection is over.
    fn handle_unknown(&mut self, addresses: AddressPair, message: &Message) {
        let body = match message.body {
            Body::DisconnectRequest => Body::DisconnectReply,
            Body::Reply(_) | Body::ReadyToUse | Body::Probe => {
                Body::Reject { reason: Reason::INVALID_COMMUNICATION_ID, private_data: Vec::new() }
            }
            _ => return,
        };
        let bytes = Message { from: message.to, to: message.from, copy: 0, body }.emit();
        let AddressPair { local: from, remote: to } = addresses;
        self.out.transmits.push_back(Transmit { from, to, bytes });
    }

    /// Handles a request from a new peer.
    fn handle_request(&mut self, peer: Peer, message: Message) {
        let (addresses, from) = peer;
        let AddressPair { local, remote } = addresses;
        let (space, offer) = match message.body {
            Body::Request(offer) => (Space::Connected, offer),
            Body::ServiceRequest(offer) => (Space::Datagram, offer),
            _ => return,
        };
        let Some(listening) = self.listeners.get(&(space, local)) else {
            if message.copy < MAX_UNANSWERED_COPIES {
                return;
            }
            let body =
                Body::Reject { reason: Reason::INVALID_SERVICE_ID, private_data: Vec::new() };
            let bytes = Message { from: self.draw_id(), to: from, copy: 0, body }.emit();
            self.out.transmits.push_back(Transmit { from: local, to: remote, bytes });
            return;
        };
        let (listener, backlog) = (listening.owner, listening.backlog);
        let waiting = self.waiting.entry(listener).or_insert(0);
        if *waiting >= backlog {
            // The other end retransmits its request.
            return;
        }
        *waiting += 1;
        let own = self.draw_id();
        let side = Side::Passive { listener };
        self.insert(Connection::new(space, side, addresses, own, from));
        self.requested.insert(peer, own);
        self.out.events.push_back((own, Event::Requested { listener, local, remote, offer }));
    }

    /// Handles an ICMP error: the host of `remote` has no socket at that port.
    pub(crate) fn handle_refused(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr) {
        let between =
            |connection: &&Connection| connection.addresses == AddressPair { local, remote };
        let ids: Vec<_> =
            self.connections.values().filter(between).map(|connection| connection.own).collect();
        for id in ids {
            self.with(id, |connection, out| connection.handle_refused(now, out));
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.deadlines.first()
            && at <= now
        {
            self.with(id, |connection, out| connection.handle_timeout(now, out));
        }
    }

    /// Returns the time at which [`Self::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    pub(crate) fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.transmits.pop_front()
    }

    pub(crate) fn poll_event(&mut self) -> Option<(CommunicationId, Event)> {
        self.out.events.pop_front()
    }

    /// Draws an ID that is unused and hard to guess.
    fn draw_id(&mut self) -> CommunicationId {
        loop {
            let id = CommunicationId(self.numbers.next_u32());
            if id != CommunicationId::NONE && !self.connections.contains_key(&id) {
                return id;
            }
        }
    }

    fn insert(&mut self, connection: Connection) {
        *self.users.entry(connection.addresses.local).or_insert(0) += 1;
        self.connections.insert(connection.own, connection);
    }

    /// Runs `act` on a connection, then updates every table.
    fn with<T>(
        &mut self,
        id: CommunicationId,
        act: impl FnOnce(&mut Connection, &mut Outbox) -> T,
    ) -> Option<T> {
        let connection = self.connections.get_mut(&id)?;
        let (deadline, state) = (connection.deadline, connection.state);
        let result = act(connection, &mut self.out);
        if connection.deadline != deadline {
            deadline.into_iter().for_each(|at| _ = self.deadlines.remove(&(at, id)));
            self.deadlines.extend(connection.deadline.map(|at| (at, id)));
        }
        if let Side::Passive { listener } = connection.side
            && state == State::RequestReceived
            && connection.state != state
        {
            count_down(&mut self.waiting, listener);
        }
        if connection.state == State::Closed {
            let peer = (connection.addresses, connection.peer);
            let local = connection.addresses.local;
            self.connections.remove(&id);
            count_down(&mut self.users, local);
            if self.requested.get(&peer) == Some(&id) {
                self.requested.remove(&peer);
            }
        }
        Some(result)
    }
}

/// Decrements a count and removes it at zero.
fn count_down<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests;
