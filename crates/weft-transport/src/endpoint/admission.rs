//! The verdict of an encryption layer beside the transport on packets that anybody can forge: requests, accepts and
//! resets.

use core::net::SocketAddr;

use weft_units::Instant;
use weft_wire::{Packet, SetupHeader, SetupKind, SetupParameters};

use super::handshake::{Answer, Refusal};
use super::token::Requester;
use super::{Arrival, ConnectionId, Endpoint, Transmit};
use crate::connection::Proof;
use crate::{CloseReason, DropReason, Verdict};

/// The verdict on a set-up packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The packet is processed.
    Admit,
    /// The packet is processed, and everything after it on the connection is encrypted. For a request, the owner gets
    /// its event once a packet has proved the peer's identity.
    AdmitSealed,
    /// The packet is not authentic, or cannot prove that it is, and is dropped.
    Drop,
    /// The request is refused, and a reject is sent.
    Refuse(SetupFault),
    /// The connection that this end requested is closed.
    Close(ConnectionId, SetupFault),
    /// The packet claims, without proof, that the peer does not know an encrypted connection: the peer is probed.
    Probe(ConnectionId),
}

/// The connection that a set-up packet refers to, as known before the packet is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupClass {
    /// No connection, or the packet will be refused.
    NoConnection,
    /// A request that does not prove its sender's address.
    Unproven,
    /// A request that creates a connection.
    New,
    /// A packet of this connection.
    Connection(ConnectionId),
}

/// A connection that has ended and whose last packet has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedConnection {
    /// The connection's id.
    pub connection: ConnectionId,
    /// The peer's address and receive port.
    pub to: SocketAddr,
    /// The peer's connection id.
    pub remote_cid: u32,
}

/// The reason a connection is not set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupFault {
    /// One end requires encryption, and the other cannot encrypt.
    NotEncrypted,
    /// The ends have different pre-shared keys, or one does not accept the identity of the other.
    NotAuthentic,
}

impl Endpoint {
    /// Returns the connection that a set-up packet refers to. Changes nothing.
    pub fn classify_setup(
        &self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
    ) -> SetupClass {
        let of = |slot: u32| self.connections.get(slot).map(|connection| connection.id);
        let named = match (header.kind, &header.terms) {
            (SetupKind::Request, Some(terms)) => {
                return self.classify_request(now, arrival, header, terms);
            }
            (SetupKind::Accept, Some(terms)) => {
                self.accepted_slot(arrival, header, terms).ok().and_then(of)
            }
            (SetupKind::Reset, _) => self.reset_slot(arrival, header).and_then(of),
            _ => None,
        };
        named.map_or(SetupClass::NoConnection, SetupClass::Connection)
    }

    fn classify_request(
        &self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
        terms: &SetupParameters,
    ) -> SetupClass {
        let (ip, receive_port) = (arrival.from.ip(), terms.receive_port);
        let requester = Requester { ip, receive_port, cid: header.local_cid };
        if !self.tokens.check(now, &requester, terms.token) {
            return SetupClass::Unproven;
        }
        let known = self.by_peer.get(&(ip, header.local_cid, receive_port));
        if let Some(connection) = known.and_then(|&slot| self.connections.get(slot)) {
            return SetupClass::Connection(connection.id);
        }
        let is_valid = header.local_cid != 0 && receive_port != 0;
        let has_room = self.connections.len() < self.connections.limit();
        let is_new = is_valid && has_room && self.refusal(header, terms).is_none();
        if is_new { SetupClass::New } else { SetupClass::NoConnection }
    }

    /// Processes a set-up packet according to its admission; [`Admission::Admit`] is equivalent to
    /// [`handle_packet`](Self::handle_packet).
    pub fn handle_admission(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
        admission: Admission,
    ) -> Verdict {
        match admission {
            Admission::Admit => self.handle_setup(now, arrival, header, false),
            Admission::AdmitSealed => self.handle_setup(now, arrival, header, true),
            // The packet that this reset answers may be a duplicate accept.
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
            Admission::Close(connection, fault) => {
                if let Some(slot) = self.connections.find(connection.0) {
                    self.connection(slot).closing = Some(fault.into());
                    self.reschedule(now, slot);
                }
                self.shared.refuse(DropReason::NotAuthentic)
            }
            Admission::Probe(connection) => {
                if let Some(slot) = self.connections.find(connection.0) {
                    self.check_peer(now, slot);
                }
                self.shared.refuse(DropReason::UnprovenReset)
            }
        }
    }

    /// Probes a peer that may have lost an encrypted connection; if the peer lost it during set-up, set-up is
    /// restarted.
    fn check_peer(&mut self, now: Instant, slot: u32) {
        let connection = self.connections.get_mut(slot).expect("the caller found it");
        connection.check_peer(now);
        if let Some(request) = connection.take_forgotten_request() {
            self.by_peer.remove(&connection.peer_key());
            connection.restart_setup(now, request, &self.shared.config);
        }
        self.reschedule(now, slot);
    }

    /// Answers an encrypted packet of an unknown connection with a reset, so that the peer closes it. `iv` is the low
    /// half of the packet's number.
    pub fn handle_unknown_encrypted(
        &mut self,
        from: SocketAddr,
        connection: ConnectionId,
        iv: u32,
    ) {
        if self.connections.find(connection.0).is_none() {
            self.answer(from, Answer::reset(connection.0, Proof::Iv(iv)));
        }
    }

    /// Returns the number of connections requested by peers that have not yet proved their identity; no event has
    /// reported them to the owner. Scans all connections.
    pub fn unproven_connections(&self) -> usize {
        self.connections.iter().filter(|connection| connection.is_unproven()).count()
    }

    /// Keeps the ids of ended connections for [`poll_ended`](Self::poll_ended), for owners that hold state per
    /// connection.
    #[must_use]
    pub fn with_ended(mut self) -> Self {
        self.ended = Some(alloc::collections::VecDeque::new());
        self
    }

    /// Returns the next connection that has ended and whose last packet has left.
    #[inline]
    pub fn poll_ended(&mut self) -> Option<EndedConnection> {
        self.ended.as_mut()?.pop_front()
    }

    /// Records a connection as ended if `answer` is its last packet.
    pub(super) fn note_ended(&mut self, answer: &Transmit) {
        let Some(ended) = &mut self.ended else { return };
        if let (Packet::Setup(header), Some(connection)) = (&answer.packet, answer.connection)
            && header.kind == SetupKind::Close
        {
            let remote_cid = header.destination_cid;
            ended.push_back(EndedConnection { connection, to: answer.to, remote_cid });
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
