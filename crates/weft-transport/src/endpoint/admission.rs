//! What encryption beside the transport says of packets that anybody can write: requests, accepts and resets.

use core::net::SocketAddr;

use weft_units::Instant;
use weft_wire::{Packet, SetupHeader, SetupKind, Terms};

use super::handshake::Refusal;
use super::token::Asker;
use super::{Arrival, ConnectionId, Endpoint, Transmit};
use crate::connection::Proof;
use crate::{CloseReason, DropReason, Verdict};

/// What is to be done with a packet of set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is taken in.
    Take,
    /// It is taken in, and what follows it on the connection is encrypted. Of a request the owner hears when a packet has
    /// proved who asks.
    TakeSealed,
    /// It is not authentic, or cannot prove that it is, and dropped.
    Drop,
    /// The request is refused, and its sender told.
    Refuse(SetupFault),
    /// The connection that this end asked for is given up.
    GiveUp(ConnectionId, SetupFault),
    /// It says that the peer does not know an encrypted connection, which it cannot prove: the peer is asked.
    Doubt(ConnectionId),
}

/// What an endpoint knows of a packet of set-up before it is taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// Nothing, or it will be refused.
    Nothing,
    /// A request that does not prove its sender's address.
    Unproven,
    /// A request that makes a connection.
    New,
    /// It is of this connection.
    Connection(ConnectionId),
}

/// A connection that is no more, and whose last packet has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgotten {
    /// Its id.
    pub connection: ConnectionId,
    /// The peer, as it receives.
    pub to: SocketAddr,
    /// The peer's id.
    pub remote_cid: u32,
}

/// Why a connection is not set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupFault {
    /// One end requires encryption, and the other cannot encrypt.
    NotEncrypted,
    /// The ends have different pre-shared keys, or one does not accept the identity of the other.
    NotAuthentic,
}

impl Endpoint {
    /// Returns what a packet of set-up is about. Changes nothing.
    pub fn named(&self, now: Instant, arrival: &Arrival, header: &SetupHeader) -> Named {
        let of = |slot: u32| self.connections.get(slot).map(|connection| connection.id);
        let named = match (header.kind, &header.terms) {
            (SetupKind::Request, Some(terms)) => {
                return self.named_by_request(now, arrival, header, terms);
            }
            (SetupKind::Accept, Some(terms)) => {
                self.accepted_slot(arrival, header, terms).ok().and_then(of)
            }
            (SetupKind::Reset, _) => self.reset_slot(arrival, header).and_then(of),
            _ => None,
        };
        named.map_or(Named::Nothing, Named::Connection)
    }

    fn named_by_request(
        &self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
        terms: &Terms,
    ) -> Named {
        let (ip, receive_port) = (arrival.from.ip(), terms.receive_port);
        let asker = Asker { ip, receive_port, cid: header.local_cid };
        if !self.tokens.check(now, &asker, terms.token) {
            return Named::Unproven;
        }
        let known = self.by_peer.get(&(ip, header.local_cid, receive_port));
        if let Some(connection) = known.and_then(|&slot| self.connections.get(slot)) {
            return Named::Connection(connection.id);
        }
        let is_valid = header.local_cid != 0 && receive_port != 0;
        let has_room = self.connections.len() < self.connections.limit();
        let is_new = is_valid && has_room && self.refusal(header, terms).is_none();
        if is_new { Named::New } else { Named::Nothing }
    }

    /// Does with a packet of set-up what its admission says; [`Admission::Take`] is
    /// [`handle_packet`](Self::handle_packet).
    pub fn handle_admission(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
        admission: Admission,
    ) -> Verdict {
        match admission {
            Admission::Take => self.handle_setup(now, arrival, header, false),
            Admission::TakeSealed => self.handle_setup(now, arrival, header, true),
            // What it answers may be an accept that came twice.
            Admission::Drop if header.kind == SetupKind::Reset => {
                self.shared.refuse(DropReason::UnprovenReset)
            }
            Admission::Drop => self.shared.refuse(DropReason::NotAuthentic),
            Admission::Refuse(fault) => {
                if let Some(terms) = header.terms {
                    let peer = SocketAddr::new(arrival.from.ip(), terms.receive_port);
                    self.reject(peer, header, Refusal::from(fault));
                }
                self.shared.refuse(DropReason::NotAuthentic)
            }
            Admission::GiveUp(connection, fault) => {
                if let Some(slot) = self.connections.find(connection.0) {
                    self.connection(slot).closing = Some(fault.into());
                    self.settle(now, slot);
                }
                self.shared.refuse(DropReason::NotAuthentic)
            }
            Admission::Doubt(connection) => {
                if let Some(slot) = self.connections.find(connection.0) {
                    self.doubt_peer(now, slot);
                }
                self.shared.refuse(DropReason::UnprovenReset)
            }
        }
    }

    /// Asks a peer that may have forgotten an encrypted connection; one that forgot it during set-up is asked for it again.
    fn doubt_peer(&mut self, now: Instant, slot: u32) {
        let connection = self.connections.get_mut(slot).expect("the caller found it");
        connection.doubt_peer(now);
        if let Some(request) = connection.take_forgotten_request() {
            self.by_peer.remove(&connection.peer_key());
            connection.ask_again(now, request, &self.shared.config);
        }
        self.settle(now, slot);
    }

    /// Answers an encrypted packet of a connection that is not known here: the peer finds out that it is no more. `iv`
    /// is the low half of the packet's number.
    pub fn handle_unopened(&mut self, from: SocketAddr, connection: ConnectionId, iv: u32) {
        if self.connections.find(connection.0).is_none() {
            let (reason, number) = Proof::Iv(iv).to_wire();
            self.answer(from, number, SetupKind::Reset, connection.0, reason, None);
        }
    }

    /// Returns how many connections peers asked for that have not proved yet who they are: their owner has not heard of
    /// them. Looks at each connection.
    pub fn unproven(&self) -> usize {
        self.connections.iter().filter(|connection| connection.is_unproven()).count()
    }

    /// Keeps the ids of connections that are no more for [`poll_forgotten`](Self::poll_forgotten): for owners that
    /// keep something for each.
    #[must_use]
    pub fn keeping_forgotten(mut self) -> Self {
        self.forgotten = Some(alloc::collections::VecDeque::new());
        self
    }

    /// Returns the next connection that is no more and whose last packet has left.
    #[inline]
    pub fn poll_forgotten(&mut self) -> Option<Forgotten> {
        self.forgotten.as_mut()?.pop_front()
    }

    /// Notes that a connection's last packet has left.
    pub(super) fn note_forgotten(&mut self, answer: &Transmit) {
        let Some(forgotten) = &mut self.forgotten else { return };
        if let (Packet::Setup(header), Some(connection)) = (&answer.packet, answer.connection)
            && header.kind == SetupKind::Close
        {
            let remote_cid = header.destination_cid;
            forgotten.push_back(Forgotten { connection, to: answer.to, remote_cid });
        }
    }
}

impl From<SetupFault> for CloseReason {
    fn from(fault: SetupFault) -> Self {
        match fault {
            SetupFault::NotEncrypted => Self::NotEncrypted,
            SetupFault::NotAuthentic => Self::NotAuthentic,
        }
    }
}

impl From<SetupFault> for Refusal {
    fn from(fault: SetupFault) -> Self {
        match fault {
            SetupFault::NotEncrypted => Self::NotEncrypted,
            SetupFault::NotAuthentic => Self::NotAuthentic,
        }
    }
}
