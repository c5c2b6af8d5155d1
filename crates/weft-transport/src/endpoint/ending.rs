//! The end of connections.

use weft_units::Instant;
use weft_wire::Packet;

use super::{ConnectionId, EndedConnection, Endpoint, Transmit};
use crate::{CloseReason, Event};

impl Endpoint {
    /// Closes a connection and notifies the peer; data not yet acknowledged may or may not arrive. [`Event::Closed`]
    /// follows. An unknown id is ignored.
    pub fn close(&mut self, now: Instant, connection: ConnectionId) {
        if let Some(slot) = self.connections.find(connection.0) {
            self.connection(slot).closing = Some(CloseReason::Local);
            self.reschedule(now, slot);
        }
    }

    /// Removes a connection. Unless the peer already knows, sends it the last ACK and then a close.
    pub(super) fn retire(&mut self, now: Instant, slot: u32, reason: CloseReason) {
        let Some(mut connection) = self.connections.remove(slot) else { return };
        let peer_knows = matches!(reason, CloseReason::Peer | CloseReason::Reset);
        let mut leaves_last_packet = false;
        if let Some(close) = connection.close_packet(&self.shared).filter(|_| !peer_knows) {
            // Both take one path, so that neither overtakes the other.
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
        if let Some(ended) = self.ended.as_mut().filter(|_| !leaves_last_packet) {
            let (to, remote_cid) = (connection.peer, connection.remote_cid);
            ended.push_back(EndedConnection { connection: connection.id, to, remote_cid });
        }
        connection.release(now, &mut self.shared);
        connection.note_first_data(&mut self.shared);
        self.by_peer.remove(&connection.peer_key());
        // No event has reported a peer that did not prove its identity.
        if !connection.is_unproven() {
            self.shared.events.push_back(Event::Closed { connection: connection.id, reason });
        }
    }
}
