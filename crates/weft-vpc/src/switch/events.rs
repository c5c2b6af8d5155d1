//! The handlers of the transport's events about connections.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use weft_transport::{CloseReason, ConnectionId, Event};
use weft_units::Instant;

use super::outgoing::frame_of;
use super::pair::{Pair, State};
use super::{DropCause, Place, Switch, Tenants};

impl Switch {
    pub(super) fn handle_event(&mut self, now: Instant, event: Event, tenants: &mut impl Tenants) {
        match event {
            Event::Connected { connection } => self.on_connected(now, connection, tenants),
            Event::Acked { connection, token } => {
                let Some((port, token)) = frame_of(token) else {
                    return self.on_hello_acked(now, connection, tenants);
                };
                if let Some(pair) = self.pairs.get_mut(connection) {
                    pair.acknowledged(token);
                    tenants.release(port, token);
                }
            }
            Event::Delivered { connection, .. } => {
                if let Some(pair) = self.pairs.get_mut(connection) {
                    pair.arriving.deliver();
                }
            }
            Event::Closed { connection, reason } => {
                self.sealed.remove(&connection);
                if let Some(peer) = self.peer_of(connection) {
                    self.on_request_ended(now, peer, reason);
                }
                self.on_host_closed(connection, tenants);
                if let Some(pair) = self.pairs.get(connection) {
                    // A machine that its host no longer has may have moved to another.
                    if let (CloseReason::Peer, Some(network)) =
                        (reason, self.networks.get_mut(&pair.vni))
                    {
                        network.table.remove_learned(pair.remote, Place::Peer(pair.peer));
                    }
                }
                self.remove_pair(connection, tenants);
            }
            _ => {}
        }
    }

    fn on_connected(&mut self, now: Instant, connection: ConnectionId, tenants: &mut impl Tenants) {
        let peer = self.endpoint.peer(connection);
        let sealed = self.sealed.remove(&connection);
        if let Some(peer) = peer.filter(|_| self.peer_of(connection).is_some()) {
            self.peers.on_accepted(peer.address, sealed);
        }
        if self.on_host_connected(connection, sealed, tenants) {
            return;
        }
        let Some(pair) = self.pairs.get_mut(connection) else { return };
        (pair.state, pair.peer_thread) = (State::Up, peer.map(|peer| peer.thread_id));
        let waiting = core::mem::take(&mut pair.waiting);
        self.send_hello(now, connection);
        for frame in waiting {
            self.submit(now, connection, frame, tenants);
        }
    }

    /// Handles the acknowledgement of our hello: the peer has the machine that the hello names.
    fn on_hello_acked(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        tenants: &mut impl Tenants,
    ) {
        let Some(pair) = self.pairs.get(connection) else { return };
        let (vni, remote) = (pair.vni, pair.remote);
        let Some(network) = self.networks.get_mut(&vni) else { return };
        let before = network.table.counters().moved;
        network.table.learn_place(remote, Place::Peer(pair.peer), now);
        if network.table.counters().moved != before {
            self.follow(now, vni, remote, tenants);
        }
    }

    /// Closes the connections of pairs to hosts that are no longer peers of the pair's network, and forgets the places
    /// learned from them: such a host may still be a peer of another network, whose packets are accepted.
    pub(super) fn forget_former_peers(&mut self, now: Instant, tenants: &mut impl Tenants) {
        let mut members = BTreeSet::new();
        for (&vni, network) in &mut self.networks {
            members.extend(network.peers.iter().map(|peer| (vni, peer.ip())));
            network.table.retain_learned(|place| match place {
                Place::Port(_) => true,
                Place::Peer(peer) => members.contains(&(vni, peer.ip())),
            });
        }
        let is_former = |pair: &Pair| !members.contains(&(pair.vni, pair.peer.ip()));
        let former = self.pairs.iter().filter(|(_, pair)| is_former(pair)).map(|(id, _)| id);
        for connection in former.collect::<Vec<_>>() {
            self.close_pair(now, connection, tenants);
        }
    }

    /// Closes a connection: nothing more is sent to its peer on it.
    pub fn close(&mut self, now: Instant, connection: ConnectionId, tenants: &mut impl Tenants) {
        self.close_pair(now, connection, tenants);
    }

    /// Ends a pair's connection and forgets the pair.
    pub(super) fn close_pair(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        tenants: &mut impl Tenants,
    ) {
        self.endpoint.close(now, connection);
        self.remove_pair(connection, tenants);
    }

    /// Removes the pair of a connection that has ended and returns its buffers and tokens to the port.
    pub(super) fn remove_pair(&mut self, connection: ConnectionId, tenants: &mut impl Tenants) {
        let Some(mut pair) = self.pairs.remove(connection) else { return };
        let port = pair.port;
        core::mem::take(&mut pair.arriving).cancel(port, tenants);
        for token in pair.into_tokens() {
            self.drop_frame(port, token, DropCause::ConnectionLost, tenants);
        }
    }
}
