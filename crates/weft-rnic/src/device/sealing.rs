//! The interface between encryption and the transport: admission of set-up packets, and connections whose keys can be
//! dropped.

use core::net::SocketAddr;

use weft_transport::{Admission, Arrival, ConnectionId, EndedConnection, SetupClass};
use weft_units::Instant;
use weft_wire::SetupHeader;

use super::Device;

impl Device {
    /// Handles a set-up packet with the decision of its admission ([`weft_transport::Endpoint::handle_admission`]).
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

    /// Classifies a set-up packet ([`weft_transport::Endpoint::classify_setup`]).
    pub fn classify_setup(
        &self,
        now: Instant,
        arrival: &Arrival,
        header: &SetupHeader,
    ) -> SetupClass {
        self.carriers.network.classify_setup(now, arrival, header)
    }

    /// Handles an encrypted packet of an unknown connection ([`weft_transport::Endpoint::handle_unknown_encrypted`]).
    pub fn handle_unknown_encrypted(
        &mut self,
        from: SocketAddr,
        connection: ConnectionId,
        iv: u32,
    ) {
        self.carriers.network.handle_unknown_encrypted(from, connection, iv);
    }

    /// Returns the next ended connection over the network whose last packet was sent, if
    /// [`with_ended`](Self::with_ended) records them.
    #[inline]
    pub fn poll_ended(&mut self) -> Option<EndedConnection> {
        self.carriers.network.poll_ended()
    }
}
