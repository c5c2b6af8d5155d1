//! What encryption of the network says of set-up packets, passed on to the transport, and when keys may be forgotten.

use core::net::SocketAddr;

use weft_transport::{Admission, Arrival, ConnectionId, EndedConnection, SetupClass};
use weft_units::Instant;
use weft_wire::SetupHeader;

use super::Device;

impl Device {
    /// Does with a packet of set-up what its admission says ([`weft_transport::Endpoint::handle_admission`]).
    pub fn handle_admission(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
        admission: Admission,
    ) {
        let _ = self.carriers.network.handle_admission(now, arrival, header, admission);
        self.handle_transport_events(now);
    }

    /// Returns what a packet of set-up is about ([`weft_transport::Endpoint::classify_setup`]).
    pub fn named(&self, now: Instant, arrival: &Arrival, header: &SetupHeader) -> SetupClass {
        self.carriers.network.classify_setup(now, arrival, header)
    }

    /// Answers an encrypted packet of a connection that is not known here
    /// ([`weft_transport::Endpoint::handle_unknown_encrypted`]).
    pub fn handle_unopened(&mut self, from: SocketAddr, connection: ConnectionId, iv: u32) {
        self.carriers.network.handle_unknown_encrypted(from, connection, iv);
    }

    /// Returns the next connection over the network that is no more and whose last packet has left.
    #[inline]
    pub fn poll_forgotten(&mut self) -> Option<EndedConnection> {
        self.carriers.network.poll_ended()
    }
}
