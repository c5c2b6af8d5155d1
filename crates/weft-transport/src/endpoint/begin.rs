//! Connections that begin at this end: requested from a peer, or joined without packets.

use core::net::SocketAddr;

use weft_units::Instant;
use weft_wire::{SetupHeader, SetupKind, SetupParameters};

use super::secret::Purpose;
use super::{ConnectionId, Endpoint};
use crate::ConnectError;
use crate::connection::{Connection, Origin};

impl Endpoint {
    /// Requests a connection from `peer` (address and receive port). [`Event::Connected`](crate::Event::Connected) or
    /// [`Event::Closed`](crate::Event::Closed) follows.
    ///
    /// # Errors
    /// [`ConnectError::TooManyConnections`] if the endpoint is at its limit.
    ///
    /// # Panics
    /// If the service is 2^56 or more.
    pub fn connect(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        service: u64,
    ) -> Result<ConnectionId, ConnectError> {
        assert!(service < 1 << 56, "a service has 56 bits");
        let slot = self.begin(now, peer, service)?;
        self.reschedule(now, slot);
        Ok(self.connection(slot).id)
    }

    /// Joins two endpoints without packets, for ends that exchanged ids over another channel (as RDMA connection
    /// managers do). The addresses are their receive addresses. No events follow. Encryption exchanges its keys during
    /// set-up and has none for such a connection: owners that encrypt must not join.
    ///
    /// # Errors
    /// [`ConnectError::TooManyConnections`] if one of them is at its limit.
    pub fn join(
        now: Instant,
        a: (&mut Self, SocketAddr),
        b: (&mut Self, SocketAddr),
    ) -> Result<(ConnectionId, ConnectionId), ConnectError> {
        let (a, a_at) = a;
        let (b, b_at) = b;
        let a_slot = a.begin(now, b_at, 0)?;
        let b_slot = b.begin(now, a_at, 0)?;
        b.become_acceptor(b_slot);
        let (a_offer, a_terms) = a.offer(a_slot);
        let (b_offer, b_terms) = b.offer(b_slot);
        a.agree(now, a_slot, &b_offer, &b_terms);
        b.agree(now, b_slot, &a_offer, &a_terms);
        Ok((ConnectionId(a_offer.local_cid), ConnectionId(b_offer.local_cid)))
    }

    pub(super) fn next_origin(&mut self) -> Origin {
        self.connections_created += 1;
        let drawn = || self.secret.draw_u32(Purpose::FirstPsn, self.connections_created);
        Origin {
            seed: self.seed.child("connection", self.connections_created),
            first_psn: self.first_psn.unwrap_or_else(drawn),
        }
    }

    fn begin(&mut self, now: Instant, peer: SocketAddr, service: u64) -> Result<u32, ConnectError> {
        let origin = self.next_origin();
        let (limit, config) = (self.connections.limit(), &self.shared.config);
        let slot = self
            .connections
            .insert(|id| Connection::requesting(id, peer, service, origin, now, config))
            .ok_or(ConnectError::TooManyConnections { limit })?;
        self.shared.requested += 1;
        Ok(slot)
    }

    /// Marks a connection that was created without packets as requested by the peer.
    fn become_acceptor(&mut self, slot: u32) {
        self.connection(slot).initiator = false;
        self.shared.requested -= 1;
        self.shared.accepted += 1;
    }

    fn offer(&self, slot: u32) -> (SetupHeader, SetupParameters) {
        let connection = self.connections.get(slot).expect("the caller made it");
        let terms = connection.terms(&self.shared);
        (connection.setup_header(SetupKind::Accept, Some(terms), &self.shared), terms)
    }

    fn agree(&mut self, now: Instant, slot: u32, offer: &SetupHeader, theirs: &SetupParameters) {
        let connection = self.connections.get_mut(slot).expect("the caller made it");
        connection.joined(now, offer, theirs, &self.shared.config);
        self.by_peer.insert(connection.peer_key(), slot);
        self.reschedule(now, slot);
    }
}
