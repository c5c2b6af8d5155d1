//! Accessors for tests.

use weft_units::Instant;

use super::{ConnectionId, Endpoint};
use crate::connection::Connection;

impl Endpoint {
    fn state(&self, connection: ConnectionId) -> &Connection {
        let slot = self.connections.find(connection.0).expect("the test holds it");
        self.connections.get(slot).expect("found just now")
    }

    pub(crate) fn is_idle(&self, connection: ConnectionId) -> bool {
        self.state(connection).holds_no_memory()
    }

    pub(crate) fn holds_packets(&self, connection: ConnectionId) -> bool {
        self.state(connection).holds_packets()
    }

    /// Returns the bytes of a connection that holds nothing, and of all entries in the schedule.
    pub(crate) fn bytes_at_rest(&self) -> (usize, usize) {
        (size_of::<Connection>(), self.schedule.len() * size_of::<(Instant, u32)>())
    }

    pub(crate) fn next_psn(&self, connection: ConnectionId) -> u32 {
        self.state(connection).next_psn()
    }

    pub(crate) fn send_base(&self, connection: ConnectionId) -> u32 {
        self.state(connection).send_base()
    }

    pub(crate) fn next_expected(&self, connection: ConnectionId) -> u32 {
        self.state(connection).receiver_base()
    }
}
