//! Frames outside pairs' connections between hosts that encrypt: broadcasts, networks without reliable delivery,
//! and frames of a pair whose paths have all failed. Each leaves under the keys of a connection to its destination
//! host, which exists only for its keys: no message is sent on it. Frames wait until it is set up, as many as for a
//! pair; a host that does not encrypt receives them unencrypted if that is allowed.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_transport::{CloseReason, ConnectionId};
use weft_units::Instant;

use super::{DropCause, InClear, Plain, PortId, Switch, Tenants, Token, Vni, speaks_plain};

/// The keys under which a frame leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The connection that has the keys.
    pub connection: ConnectionId,
    /// The thread of the other host that has the connection's other end.
    pub peer_thread: u8,
}

/// A connection to a host, used only for its keys.
#[derive(Debug)]
struct HostConnection {
    /// The protection of its frames; `None` until the connection is set up.
    protection: Option<Protection>,
    /// Frames that wait for the set-up.
    waiting: VecDeque<Plain>,
}

/// The protection with which a frame leaves for a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protection {
    /// The frame leaves as plain VXLAN.
    Clear,
    /// The frame leaves under these keys.
    Sealed(Keys),
    /// The frame waits for the set-up of the connection.
    Pending,
    /// The frame is dropped for this cause.
    Refused(DropCause),
}

/// All connections to hosts.
#[derive(Debug, Default)]
pub(super) struct HostConnections {
    by_host: BTreeMap<SocketAddr, HostConnection>,
    by_connection: BTreeMap<ConnectionId, SocketAddr>,
    /// The number of times that a frame still has to leave, for frames that leave more than once.
    parts: BTreeMap<(PortId, Token), usize>,
}

impl HostConnections {
    pub(super) fn peer_of(&self, connection: ConnectionId) -> Option<SocketAddr> {
        self.by_connection.get(&connection).copied()
    }

    /// Counts a part of a frame as sent or dropped. Returns `true` if it was the last one: the frame's token is
    /// released then.
    fn finish_part(&mut self, plain: &Plain) -> bool {
        let key = (plain.port, plain.token);
        let Some(parts) = self.parts.get_mut(&key) else { return true };
        *parts -= 1;
        let is_last = *parts == 0;
        if is_last {
            self.parts.remove(&key);
        }
        is_last
    }
}

impl Switch {
    /// Returns the next frame to send outside a pair's connection.
    pub fn poll_plain(&mut self) -> Option<Plain> {
        let mut plain = self.plain.pop_front()?;
        plain.is_last = self.host_connections.finish_part(&plain);
        Some(plain)
    }

    /// Sends a frame outside a pair's connection.
    pub(super) fn carry_plain(&mut self, now: Instant, plain: Plain, tenants: &mut impl Tenants) {
        self.count(plain.port).plain_sent += 1;
        if self.config.in_clear == InClear::Any {
            return self.plain.push_back(plain);
        }
        let (mut clear, mut parts) = (Vec::new(), 0);
        for &peer in &plain.to {
            match self.protection_for(now, plain.vni, peer) {
                Protection::Clear => clear.push(peer),
                Protection::Sealed(keys) => {
                    self.plain.push_back(plain.to_one(peer, Some(keys)));
                    parts += 1;
                }
                Protection::Pending if self.enqueue_for_set_up(peer, &plain) => parts += 1,
                Protection::Pending => self.count(plain.port).drop_frame(DropCause::QueueFull),
                Protection::Refused(cause) => self.count(plain.port).drop_frame(cause),
            }
        }
        let key = (plain.port, plain.token);
        if !clear.is_empty() {
            self.plain.push_back(Plain { to: clear, ..plain });
            parts += 1;
        }
        match parts {
            0 => tenants.release(key.0, key.1),
            1 => {}
            _ => drop(self.host_connections.parts.insert(key, parts)),
        }
    }

    /// Queues a frame for the connection to a host. Returns `false` if the queue is full.
    fn enqueue_for_set_up(&mut self, peer: SocketAddr, plain: &Plain) -> bool {
        let Some(host) = self.host_connections.by_host.get_mut(&peer) else { return false };
        let fits = host.waiting.len() < self.config.waiting_frames;
        if fits {
            host.waiting.push_back(plain.to_one(peer, None));
        }
        fits
    }

    /// Returns the protection of a frame to a host. Requests a connection if it is unknown whether the host encrypts.
    fn protection_for(&mut self, now: Instant, vni: Vni, peer: SocketAddr) -> Protection {
        if self.is_vtep(vni, peer) {
            return Protection::Clear;
        }
        // Until it answers, a host known to speak only VXLAN is sent only VXLAN.
        let plain = self.peers.plain_until(peer);
        let known = self.host_connections.by_host.get(&peer);
        match (known.map(|host| host.protection), plain) {
            (Some(Some(protection)), _) => protection,
            (Some(None), None) => Protection::Pending,
            (Some(None), Some(_)) => Protection::Clear,
            (None, _) if self.peers.refuses(now, peer) => {
                Protection::Refused(DropCause::NotEncrypted)
            }
            (None, Some(until)) => {
                if until <= now {
                    self.connect_to_host(now, peer);
                }
                Protection::Clear
            }
            (None, None) if self.connect_to_host(now, peer) => Protection::Pending,
            (None, None) => Protection::Refused(DropCause::QueueFull),
        }
    }

    /// Requests a connection to a host if there is none. Returns `false` at the limit of connections.
    pub(super) fn connect_to_host(&mut self, now: Instant, peer: SocketAddr) -> bool {
        if self.host_connections.by_host.contains_key(&peer) {
            return true;
        }
        let Ok(connection) = self.endpoint.connect(now, peer, 0) else { return false };
        let host = HostConnection { protection: None, waiting: VecDeque::new() };
        self.host_connections.by_host.insert(peer, host);
        self.host_connections.by_connection.insert(connection, peer);
        true
    }

    /// Handles a connection that is set up. Returns `false` if it is not one to a host.
    pub(super) fn on_host_connected(
        &mut self,
        connection: ConnectionId,
        sealed: bool,
        tenants: &mut impl Tenants,
    ) -> bool {
        let Some(&peer) = self.host_connections.by_connection.get(&connection) else {
            return false;
        };
        let peer_thread = self.endpoint.peer(connection).map_or(0, |peer| peer.thread_id);
        let protection = match (sealed, self.config.in_clear) {
            (true, _) => Protection::Sealed(Keys { connection, peer_thread }),
            (false, InClear::Nothing) => Protection::Refused(DropCause::NotEncrypted),
            (false, _) => Protection::Clear,
        };
        let Some(host) = self.host_connections.by_host.get_mut(&peer) else { return true };
        host.protection = Some(protection);
        let waiting = core::mem::take(&mut host.waiting);
        self.send_waiting(waiting, protection, tenants);
        true
    }

    /// Handles a connection that ended, if it is one to a host. Its waiting frames leave unencrypted if that
    /// is allowed.
    pub(super) fn on_host_closed(&mut self, connection: ConnectionId, tenants: &mut impl Tenants) {
        let Some(peer) = self.host_connections.by_connection.remove(&connection) else { return };
        let Some(host) = self.host_connections.by_host.remove(&peer) else { return };
        let protection = match self.peers.plain_until(peer) {
            Some(_) => Protection::Clear,
            None => Protection::Refused(DropCause::NotEncrypted),
        };
        self.send_waiting(host.waiting, protection, tenants);
    }

    fn send_waiting(
        &mut self,
        waiting: VecDeque<Plain>,
        protection: Protection,
        tenants: &mut impl Tenants,
    ) {
        for plain in waiting {
            match protection {
                Protection::Clear => self.plain.push_back(plain),
                Protection::Sealed(keys) => {
                    self.plain.push_back(Plain { under: Some(keys), ..plain })
                }
                Protection::Pending => unreachable!("the connection is set up or gone"),
                Protection::Refused(cause) => {
                    self.count(plain.port).drop_frame(cause);
                    self.drop_part(&plain, tenants);
                }
            }
        }
    }

    /// Records the finding about the peer of a connection that this host requested and that ended.
    pub(super) fn on_request_ended(&mut self, now: Instant, peer: SocketAddr, reason: CloseReason) {
        let until = now + self.config.plain_period;
        if speaks_plain(reason)
            || matches!(reason, CloseReason::NotEncrypted | CloseReason::NotAuthentic)
        {
            self.peers.on_failed(now, peer);
        }
        let must_encrypt = match self.config.in_clear {
            InClear::Any => false,
            InClear::Unable => self.peers.encrypts(peer) == Some(true),
            InClear::Nothing => true,
        };
        match reason {
            CloseReason::NotEncrypted | CloseReason::NotAuthentic => {
                self.peers.on_refused(peer, until)
            }
            CloseReason::Refused | CloseReason::NoCommonVersion if must_encrypt => {
                self.peers.on_refused(peer, until);
            }
            _ if speaks_plain(reason) && !must_encrypt => self.peers.on_plain_peer(peer, until),
            _ => {}
        }
    }

    /// Closes connections to hosts that are no longer peers of any network.
    pub(super) fn close_host_connections(&mut self, now: Instant) {
        let connections = &self.host_connections.by_connection;
        let obsolete = connections.iter().filter(|(_, peer)| !self.hosts.contains(&peer.ip()));
        for connection in obsolete.map(|(&connection, _)| connection).collect::<Vec<_>>() {
            self.endpoint.close(now, connection);
        }
    }

    /// Drops the plain frames of a port that have not left yet.
    pub(super) fn drop_plain_of(&mut self, port: PortId, tenants: &mut impl Tenants) {
        let mut all = core::mem::take(&mut self.plain);
        for host in self.host_connections.by_host.values_mut() {
            let (own, others) = core::mem::take(&mut host.waiting)
                .into_iter()
                .partition::<VecDeque<_>, _>(|plain| plain.port == port);
            host.waiting = others;
            all.extend(own);
        }
        for plain in all {
            if plain.port == port {
                self.drop_part(&plain, tenants);
            } else {
                self.plain.push_back(plain);
            }
        }
    }

    fn drop_part(&mut self, plain: &Plain, tenants: &mut impl Tenants) {
        if self.host_connections.finish_part(plain) {
            tenants.release(plain.port, plain.token);
        }
    }
}

impl Plain {
    /// Returns the same frame for one of its hosts.
    fn to_one(&self, peer: SocketAddr, under: Option<Keys>) -> Self {
        Self { to: Vec::from([peer]), under, ..*self }
    }
}
