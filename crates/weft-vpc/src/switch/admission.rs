//! The calls by which the owner, which encrypts, and the transport agree on connections and keys.

use weft_transport::{Admission, Arrival, ConnectionId, EndedConnection, SetupClass};
use weft_units::Instant;
use weft_wire::{SetupHeader, SetupKind};

use super::{DropCause, Switch};

impl Switch {
    /// Returns the connection or request that a set-up packet refers to ([`weft_transport::Endpoint::classify_setup`]).
    pub fn classify_setup(
        &self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
    ) -> SetupClass {
        self.endpoint.classify_setup(now, arrival, header)
    }

    /// Handles a set-up packet of this thread with the decision of the owner's encryption. `sealed` is `true` if
    /// there are keys for the connection that it names. The owner calls this after
    /// [`redirect_packet`](Self::redirect_packet).
    pub fn handle_admission(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
        admission: Admission,
        sealed: bool,
    ) {
        if sealed && header.kind == SetupKind::Accept {
            self.sealed.insert(ConnectionId(header.destination_cid));
        }
        // A set-up packet has no payload to place.
        let _ = self.endpoint.handle_admission(now, arrival, header, admission);
    }

    /// Answers a peer's encrypted packet of a connection that is unknown here, whose packet number ends in `iv`, so
    /// that the peer learns that the connection has ended.
    pub fn handle_unknown_encrypted(
        &mut self,
        arrival: &Arrival,
        connection: ConnectionId,
        iv: u32,
    ) {
        if !self.hosts.contains(&arrival.from.ip()) {
            return self.counters.drop_frame(DropCause::UnknownPeer);
        }
        self.endpoint.handle_unknown_encrypted(arrival.from, connection, iv);
    }

    /// Returns the next connection that has ended and whose last packet has left: its keys are no longer
    /// needed.
    #[inline]
    pub fn poll_ended(&mut self) -> Option<EndedConnection> {
        self.endpoint.poll_ended()
    }
}
