//! What the owner, which encrypts, and the transport have to say to each other.

use weft_transport::{Admission, Arrival, ConnectionId, Forgotten, Named};
use weft_units::Instant;
use weft_wire::{SetupHeader, SetupKind};

use super::{DropCause, Switch};

impl Switch {
    /// Returns what a packet of set-up is about ([`weft_transport::Endpoint::named`]).
    pub fn named(&self, now: Instant, arrival: &Arrival, header: &SetupHeader) -> Named {
        self.endpoint.named(now, arrival, header)
    }

    /// Does with a packet of set-up that is for this thread what the owner's encryption says of it. `sealed` says whether
    /// there are keys for the connection that it names. To be called after [`leave_packet`](Self::leave_packet).
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
        // A packet of set-up has no payload that would have to be placed.
        let _ = self.endpoint.handle_admission(now, arrival, header, admission);
    }

    /// Answers a peer's encrypted packet of a connection that is not known here, whose number ends in `iv`: the peer finds
    /// out that the connection is no more.
    pub fn handle_unopened(&mut self, arrival: &Arrival, connection: ConnectionId, iv: u32) {
        if !self.hosts.contains(&arrival.from.ip()) {
            return self.counters.drop_frame(DropCause::UnknownPeer);
        }
        self.endpoint.handle_unopened(arrival.from, connection, iv);
    }

    /// Returns the next connection that is no more and whose last packet has left: its keys are of no use any more.
    #[inline]
    pub fn poll_forgotten(&mut self) -> Option<Forgotten> {
        self.endpoint.poll_forgotten()
    }
}
