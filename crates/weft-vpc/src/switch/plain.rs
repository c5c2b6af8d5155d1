//! Plain VXLAN from other hosts: frames that any host able to forge a peer's address can send (RFC 7348,
//! section 7).
//!
//! So a frame for a machine of this host is accepted only from a peer that is known to speak only VXLAN. Any other
//! peer is sent a connection request and has to send its frames on that connection. Broadcasts have no other way:
//! they are accepted, and unknown places are learned from them, but places that a connection has proved stay.
//!
//! A host that encrypts accepts plain frames of every kind only from peers that are known not to encrypt. Frames
//! under a connection's keys (`host_connection.rs`) prove their sender.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_transport::ConnectionId;
use weft_units::{Duration, Instant};
use weft_wire::{MacAddr, VirtioNetHeader};

use super::arrive::PlainArrival;
use super::pair::{State, VnicPair};
use super::{DropCause, Handover, InClear, Place, PortId, Switch, Tenants, Vni};
use crate::{Frame, GATEWAY};

/// Number of connection requests that plain frames may cause for one peer within
/// [`plain_period`](super::SwitchConfig::plain_period): one per second by default. Forged frames cost no more.
const PROBES_WITHIN_PLAIN_PERIOD: u64 = 10;

/// The time for which a failed request shows that a peer is not reached: five times the interval of requests to a peer that
/// does not answer ([`plain_period`](super::SwitchConfig::plain_period)), as senders that get no answer send rarely.
const FAILURE_PERIOD: Duration = Duration::from_secs(60);

/// The findings about peers.
#[derive(Debug, Default)]
pub(super) struct KnownPeers {
    /// Peers that speak only VXLAN, and the time at which each is sent a request again; it counts as such until it
    /// answers.
    plain_until: BTreeMap<SocketAddr, Instant>,
    /// Peers that have accepted a connection; `true` if the last one is encrypted.
    encrypts: BTreeMap<SocketAddr, bool>,
    /// Peers that refuse connections, and the time before which they are sent no request.
    refused: BTreeMap<SocketAddr, Instant>,
    /// Peers that did not accept the last request for a connection, and the time of that.
    failed: BTreeMap<SocketAddr, Instant>,
    /// The time of the last request that a plain frame caused, by peer.
    probed: BTreeMap<SocketAddr, Instant>,
}

impl KnownPeers {
    /// Records that a peer did not answer as Weft. It is sent a request again at `until`.
    pub(super) fn on_plain_peer(&mut self, peer: SocketAddr, until: Instant) {
        self.plain_until.insert(peer, until);
    }

    /// Records that a peer answered as Weft.
    pub(super) fn on_weft_answer(&mut self, peer: SocketAddr) {
        self.plain_until.remove(&peer);
        self.refused.remove(&peer);
        self.failed.remove(&peer);
    }

    /// Records that a request for a connection to a peer failed, or that its connection was lost.
    pub(super) fn on_failed(&mut self, now: Instant, peer: SocketAddr) {
        self.failed.insert(peer, now);
    }

    /// Returns the peers to which connections were requested, with `true` if the last request was accepted, and `false`
    /// if it failed within [`FAILURE_PERIOD`]. Older failures say nothing about the present.
    pub(super) fn reached(&self, now: Instant) -> impl Iterator<Item = (SocketAddr, bool)> {
        let is_recent = move |&(_, &at): &(_, &Instant)| now.since(at) < FAILURE_PERIOD;
        let failed = self.failed.iter().filter(is_recent).map(|(&peer, _)| (peer, false));
        let accepted = self.encrypts.keys().filter(|peer| !self.failed.contains_key(peer));
        failed.chain(accepted.map(|&peer| (peer, true)))
    }

    /// Records that a peer accepted a connection; `sealed` is `true` if it is encrypted.
    pub(super) fn on_accepted(&mut self, peer: SocketAddr, sealed: bool) {
        self.on_weft_answer(peer);
        self.encrypts.insert(peer, sealed);
    }

    /// Returns `true` if the last connection that a peer accepted is encrypted; `None` if it has accepted none.
    pub(super) fn encrypts(&self, peer: SocketAddr) -> Option<bool> {
        self.encrypts.get(&peer).copied()
    }

    /// Records that a peer refused a connection. It is sent no request before `until`.
    pub(super) fn on_refused(&mut self, peer: SocketAddr, until: Instant) {
        self.refused.insert(peer, until);
    }

    /// Returns `true` if a peer has refused a connection too recently for another request.
    pub(super) fn refuses(&self, now: Instant, peer: SocketAddr) -> bool {
        self.refused.get(&peer).is_some_and(|&until| now < until)
    }

    /// Returns the time until which a peer that speaks only VXLAN is sent no request; `None` for other peers.
    pub(super) fn plain_until(&self, peer: SocketAddr) -> Option<Instant> {
        self.plain_until.get(&peer).copied()
    }

    /// Returns `true` if a peer is sent plain VXLAN now, and no request.
    pub(super) fn is_plain(&self, now: Instant, peer: SocketAddr) -> bool {
        self.plain_until.get(&peer).is_some_and(|&until| now < until)
    }

    /// Returns `true`, and records the request, if a plain frame may cause a request to a peer, at most once
    /// in `every`.
    fn may_probe(&mut self, now: Instant, peer: SocketAddr, every: Duration) -> bool {
        let probed = self.probed.get(&peer).copied();
        let may = probed.is_none_or(|probed| now.since(probed) >= every);
        if may {
            self.probed.insert(peer, now);
        }
        may
    }
}

/// A plain frame with its destination's place and the trust in its sender.
struct PlainFrame<'a> {
    vni: Vni,
    peer: SocketAddr,
    frame: Frame,
    ethernet: &'a [u8],
    /// The place of its destination; `None` for a broadcast.
    place: Option<Place>,
    /// `true` if its source is trusted.
    trusted: bool,
    /// `true` if its peer is to be sent a connection request.
    needs_probe: bool,
    /// `true` if its source was known at another place.
    moved: bool,
}

impl Switch {
    /// Handles a frame that arrived as plain VXLAN from the host at `from`.
    pub fn handle_plain(
        &mut self,
        now: Instant,
        from: SocketAddr,
        vni: Vni,
        ethernet: &[u8],
        tenants: &mut impl Tenants,
    ) {
        let arrival = PlainArrival { from, proven: false, vni, ethernet };
        match self.allows_in_clear(now, from, vni) {
            Ok(()) => self.handle_plain_arrival(now, arrival, tenants),
            Err(cause) => self.counters.drop_frame(cause),
        }
    }

    /// Handles a frame that arrived under the keys of a connection, which prove that its peer sent it.
    pub fn handle_sealed(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        vni: Vni,
        ethernet: &[u8],
        tenants: &mut impl Tenants,
    ) {
        let Some(peer) = self.endpoint.peer(connection) else {
            return self.counters.drop_frame(DropCause::UnknownPeer);
        };
        let arrival = PlainArrival { from: peer.address, proven: true, vni, ethernet };
        self.handle_plain_arrival(now, arrival, tenants);
    }

    /// Returns an error for an unencrypted frame that must be encrypted, or whose host may encrypt. Sends such a
    /// host a connection request.
    fn allows_in_clear(
        &mut self,
        now: Instant,
        from: SocketAddr,
        vni: Vni,
    ) -> Result<(), DropCause> {
        if self.networks.get(&vni).is_some_and(|network| network.vtep(from.ip()).is_some()) {
            return Ok(());
        }
        match self.config.in_clear {
            InClear::Any => return Ok(()),
            InClear::Nothing => return Err(DropCause::InClear),
            InClear::Unable => {}
        }
        let network = self.networks.get(&vni).ok_or(DropCause::UnknownPeer)?;
        let known = network.peers.iter().find(|peer| peer.ip() == from.ip());
        let peer = *known.ok_or(DropCause::UnknownPeer)?;
        match (self.peers.encrypts(peer), self.peers.plain_until(peer)) {
            (Some(true), _) => Err(DropCause::InClear),
            (Some(false), _) => Ok(()),
            (None, until) => {
                if until.is_none_or(|until| until <= now) && !self.peers.refuses(now, peer) {
                    self.connect_to_host(now, peer);
                }
                until.map(|_| ()).ok_or(DropCause::Unproven)
            }
        }
    }

    /// Handles a frame that arrived outside a pair's connection.
    fn handle_plain_arrival(
        &mut self,
        now: Instant,
        arrival: PlainArrival<'_>,
        tenants: &mut impl Tenants,
    ) {
        let PlainArrival { from, proven, vni, ethernet } = arrival;
        let plain = match self.learn_plain(now, arrival) {
            Ok(plain) => plain,
            Err(cause) => return self.counters.drop_frame(cause),
        };
        self.counters.plain_received += 1;
        let threads = match plain.place {
            Some(Place::Port(port)) => Vec::from_iter(self.others.thread_of(port)),
            Some(Place::Peer(_)) => Vec::new(),
            None => self.others.of_network(vni),
        };
        for thread in threads {
            let ethernet = ethernet.to_vec();
            self.hand_over(thread, Handover::Plain { from, proven, vni, ethernet });
        }
        self.deliver_plain(now, &plain, tenants);
    }

    /// Delivers a plain frame that arrived at another thread, which has counted it.
    pub(super) fn ingest_plain(
        &mut self,
        now: Instant,
        arrival: PlainArrival<'_>,
        tenants: &mut impl Tenants,
    ) {
        if let Ok(plain) = self.learn_plain(now, arrival) {
            self.deliver_plain(now, &plain, tenants);
        }
    }

    /// Finds the destination of a plain frame, and learns its source if that is trusted.
    fn learn_plain<'a>(
        &mut self,
        now: Instant,
        arrival: PlainArrival<'a>,
    ) -> Result<PlainFrame<'a>, DropCause> {
        let PlainArrival { from, proven, vni, ethernet } = arrival;
        let network = self.networks.get_mut(&vni).ok_or(DropCause::UnknownPeer)?;
        let vtep = network.vtep(from.ip());
        let known = network.peers.iter().find(|peer| peer.ip() == from.ip());
        let peer = vtep.or_else(|| known.copied()).ok_or(DropCause::UnknownPeer)?;
        let frame = Frame::parse(ethernet, ethernet.len()).map_err(|_| DropCause::Malformed)?;
        let is_set = network.is_set_to(frame.source, peer)?;
        let place = network.table.find(&frame, now);
        if vtep.is_some() {
            if is_set {
                network.table.learn_neighbour(&frame, ethernet, now);
            }
            let (trusted, needs_probe, moved) = (false, false, false);
            return Ok(PlainFrame {
                vni,
                peer,
                frame,
                ethernet,
                place,
                trusted,
                needs_probe,
                moved,
            });
        }
        let until = self.peers.plain_until.get(&peer);
        let proved = proven || !network.config.reliable;
        let trusted = proved || until.is_some();
        let needs_probe = !proved && until.is_none_or(|&until| until <= now);
        let before = network.table.counters().moved;
        if trusted {
            network.table.learn(&frame, ethernet, Place::Peer(peer), now);
        } else if place.is_none()
            && !network.table.introduce(&frame, ethernet, Place::Peer(peer), now)
        {
            self.probe_moved(now, vni, frame.source, peer);
        }
        let moved = self.table(vni).counters().moved != before;
        Ok(PlainFrame { vni, peer, frame, ethernet, place, trusted, needs_probe, moved })
    }

    /// Delivers a plain frame to the ports of this thread that it is for.
    fn deliver_plain(&mut self, now: Instant, plain: &PlainFrame<'_>, tenants: &mut impl Tenants) {
        if plain.moved {
            self.follow(now, plain.vni, plain.frame.source, tenants);
        }
        let ports = match plain.place {
            Some(Place::Port(port)) if !self.ports.contains_key(&port) => Vec::new(),
            Some(Place::Port(port)) => {
                let requested = plain.needs_probe && self.request_pair(now, port, plain);
                if requested && !plain.trusted {
                    return self.count(port).drop_frame(DropCause::Unproven);
                }
                Vec::from([port])
            }
            // It is forwarded to no third host: two hosts that name each other as its place would forward it
            // forever.
            Some(Place::Peer(_)) => return self.counters.drop_frame(DropCause::NoRoute),
            None => self.others(plain.vni, None).collect(),
        };
        for port in ports {
            self.deliver(now, port, &[0; VirtioNetHeader::LEN], plain.ethernet, tenants);
        }
    }

    /// Requests the connection on which a peer's machine should have sent a frame for `port`. Returns `false` at
    /// the limit of connections, when plain VXLAN is the only way.
    fn request_pair(&mut self, now: Instant, port: PortId, plain: &PlainFrame<'_>) -> bool {
        let PlainFrame { vni, peer, frame, .. } = *plain;
        // A frame that a gateway forwarded does not name its sender.
        if frame.source == GATEWAY {
            return true;
        }
        let every = self.config.plain_period / PROBES_WITHIN_PLAIN_PERIOD;
        match self.pairs.sending((port, frame.source)) {
            None if self.peers.may_probe(now, peer, every) => {
                let (local, remote) = (frame.destination, frame.source);
                let vnics = VnicPair { vni, port, local, remote, peer };
                let probed = self.connect(now, vnics).is_some();
                if !probed {
                    self.peers.probed.remove(&peer);
                }
                probed
            }
            None => true,
            // The peer may have lost the connection, or its paths have failed: a message shows which.
            Some(connection) => {
                let pair = self.pairs.get(connection);
                let leads_there = |pair: &super::Pair| {
                    pair.state == State::Up && pair.leads_to(Place::Peer(peer))
                };
                if pair.is_some_and(leads_there) && self.peers.may_probe(now, peer, every) {
                    self.send_hello(now, connection);
                }
                true
            }
        }
    }

    /// Sends a request to `peer` after an unproven frame placed a machine there that is known at another place. If
    /// the peer accepts a connection for it, the machine has moved ([`on_hello_acked`](Self::on_hello_acked)).
    fn probe_moved(&mut self, now: Instant, vni: Vni, mac: MacAddr, peer: SocketAddr) {
        let joined = |&&port: &&PortId| self.pairs.sending((port, mac)).is_some();
        let ports: Vec<PortId> = self.others(vni, None).collect();
        let Some(&port) = ports.iter().find(joined).or_else(|| ports.first()) else {
            return;
        };
        let every = self.config.plain_period / PROBES_WITHIN_PLAIN_PERIOD;
        let own = self.ports.get(&port).and_then(|port| port.config.addresses.first().copied());
        if let Some(local) = own.filter(|_| self.peers.may_probe(now, peer, every)) {
            self.connect(now, VnicPair { vni, port, local, remote: mac, peer });
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_peer_is_probed_once_a_second_however_often_its_address_is_forged() {
        let mut peers = KnownPeers::default();
        let peer = |last| SocketAddr::from((Ipv4Addr::new(10, 0, 0, last), 4789));
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let probed = (0..3_000)
            .filter(|&millis| peers.may_probe(at(millis), peer(1), Duration::from_secs(1)));
        assert_eq!(probed.collect::<Vec<_>>(), [0, 1_000, 2_000]);
        assert!(peers.may_probe(at(2_500), peer(2), Duration::from_secs(1)));
    }
}
