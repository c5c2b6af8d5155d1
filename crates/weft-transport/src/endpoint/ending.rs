//! Connections that end.

use weft_units::Instant;
use weft_wire::Packet;

use super::{ConnectionId, Endpoint, Forgotten, Transmit};
use crate::{CloseReason, Event};

impl Endpoint {
    /// Ends a connection and tells the peer; what was not acknowledged may or may not arrive.
    /// `Closed` follows. An id that means nothing is ignored.
    pub fn close(&mut self, now: Instant, connection: ConnectionId) {
        if let Some(slot) = self.connections.find(connection.0) {
            self.connection(slot).closing = Some(CloseReason::Local);
            self.settle(now, slot);
        }
    }

    /// Drops a connection, telling the peer unless the peer knows: what was placed, then that it ends.
    pub(super) fn retire(&mut self, now: Instant, slot: u32, reason: CloseReason) {
        let Some(mut connection) = self.connections.remove(slot) else { return };
        let peer_knows = matches!(reason, CloseReason::Peer | CloseReason::Reset);
        let mut leaves_last_packet = false;
        if let Some(close) = connection.close_packet(&self.shared).filter(|_| !peer_knows) {
            // By one path, where neither overtakes the other.
            let (to, path) = (connection.peer, self.shared.any_path());
            let ack = connection.last_ack(now, &mut self.shared).map(Packet::Ack);
            let connection = Some(connection.id);
            leaves_last_packet = true;
            self.answers.extend(ack.into_iter().chain([close]).map(|packet| Transmit {
                connection,
                to,
                path,
                packet,
                padding: 0,
                payload: None,
            }));
        }
        if let Some(forgotten) = self.forgotten.as_mut().filter(|_| !leaves_last_packet) {
            let (to, remote_cid) = (connection.peer, connection.remote_cid);
            forgotten.push_back(Forgotten { connection: connection.id, to, remote_cid });
        }
        connection.release(now, &mut self.shared);
        connection.note_begun(&mut self.shared);
        self.by_peer.remove(&connection.peer_key());
        // Nobody was told of a peer that did not prove who it is.
        if !connection.is_unproven() {
            self.shared.events.push_back(Event::Closed { connection: connection.id, reason });
        }
    }
}
