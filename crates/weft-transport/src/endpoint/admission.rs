//! What encryption beside the transport says of packets that anybody can write: requests, accepts and resets.

use core::net::SocketAddr;

use weft_units::Instant;
use weft_wire::{Packet, SetupHeader, SetupKind};

use super::handshake::Refusal;
use super::token::Asker;
use super::{Arrival, ConnectionId, Endpoint};
use crate::connection::Proof;
use crate::{CloseReason, DropReason, Verdict};

/// What is to be done with a packet of set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is taken in.
    Take,
    /// It is not authentic, and dropped.
    Drop,
    /// The request is refused, and its sender told.
    Refuse(SetupFault),
    /// The connection that this end asked for is given up.
    GiveUp(ConnectionId, SetupFault),
    /// It says that the peer does not know an encrypted connection, which it cannot prove: the peer is asked.
    Doubt(ConnectionId),
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
    /// Returns `true` if a request carries a token that proves its sender's address.
    pub fn proves_address(&self, now: Instant, arrival: &Arrival, request: &SetupHeader) -> bool {
        request.terms.is_some_and(|terms| {
            let (ip, receive_port) = (arrival.from.ip(), terms.receive_port);
            let asker = Asker { ip, receive_port, cid: request.local_cid };
            self.tokens.check(now, &asker, terms.token)
        })
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
            Admission::Take => self.handle_setup(now, arrival, header),
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
                    self.connections.get_mut(slot).expect("found just now").doubt_peer(now);
                    self.settle(now, slot);
                }
                self.shared.refuse(DropReason::UnprovenReset)
            }
        }
    }

    /// Answers an encrypted packet of a connection that is not known here: the peer finds out that it is no more. `iv`
    /// is the low half of the packet's number.
    pub fn handle_unopened(&mut self, from: SocketAddr, connection: ConnectionId, iv: u32) {
        if self.connections.find(connection.0).is_none() {
            let (reason, number) = Proof::Iv(iv).to_wire();
            self.answer(from, number, SetupKind::Reset, connection.0, reason, None);
        }
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
    pub fn poll_forgotten(&mut self) -> Option<ConnectionId> {
        self.forgotten.as_mut()?.pop_front()
    }

    /// Notes that a connection's last packet has left.
    pub(super) fn note_forgotten(&mut self, connection: Option<ConnectionId>, packet: &Packet) {
        let is_last = matches!(packet, Packet::Setup(SetupHeader { kind: SetupKind::Close, .. }));
        if let Some(forgotten) = self.forgotten.as_mut().filter(|_| is_last) {
            forgotten.extend(connection);
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
