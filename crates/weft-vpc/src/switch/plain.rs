//! Plain VXLAN from other hosts: frames that anyone can send who can forge a peer's address (RFC 7348, section 7).
//!
//! So a frame for a machine of this host is taken from a peer only if that peer was found to speak nothing else. Another
//! is asked for a connection, and has what it has to say come on that. Frames for everybody have no other way: they are
//! taken, and teach what is not known, but nothing that a connection has proved.
//!
//! A host that encrypts takes them, for whomever they are, only from peers that were found not to encrypt. Frames under
//! a connection's keys (`host_connection.rs`) prove their sender.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_transport::ConnectionId;
use weft_units::{Duration, Instant};
use weft_wire::{MacAddr, VirtioNetHeader};

use super::pair::State;
use super::{DropCause, Handover, InClear, Place, PortId, Switch, Tenants, Vni};
use crate::{Frame, GATEWAY};

/// How often one peer is asked for a connection because of what came in plain, in parts of how long one is spoken to in
/// plain: once a second by default. Forged frames cost no more.
const ASKED_MEANWHILE: u64 = 10;

/// What was found out about peers.
#[derive(Debug, Default)]
pub(super) struct KnownPeers {
    /// Peers that speak nothing but VXLAN, and until when each is spoken to so. From then on it is asked again, and still
    /// believed until it answers.
    until: BTreeMap<SocketAddr, Instant>,
    /// Peers that have accepted a connection, and whether the last one is encrypted.
    encrypts: BTreeMap<SocketAddr, bool>,
    /// Peers that refuse connections, and until when they are asked for none.
    refused: BTreeMap<SocketAddr, Instant>,
    /// When each peer was last asked because of a plain frame.
    asked: BTreeMap<SocketAddr, Instant>,
}

impl KnownPeers {
    /// A peer did not answer as Weft. It is asked again at `until`.
    pub(super) fn speaks_plain(&mut self, peer: SocketAddr, until: Instant) {
        self.until.insert(peer, until);
    }

    /// A peer answered as Weft.
    pub(super) fn speaks_weft(&mut self, peer: SocketAddr) {
        self.until.remove(&peer);
        self.refused.remove(&peer);
    }

    /// A peer accepted a connection.
    pub(super) fn accepted(&mut self, peer: SocketAddr, sealed: bool) {
        self.speaks_weft(peer);
        self.encrypts.insert(peer, sealed);
    }

    /// Returns whether the last connection that a peer accepted is encrypted; `None` if it has accepted none.
    pub(super) fn encrypts(&self, peer: SocketAddr) -> Option<bool> {
        self.encrypts.get(&peer).copied()
    }

    /// A peer refused a connection. It is asked for none before `until`.
    pub(super) fn refused(&mut self, peer: SocketAddr, until: Instant) {
        self.refused.insert(peer, until);
    }

    /// Returns `true` if a peer is not to be asked for a connection, as it has just refused one.
    pub(super) fn refuses(&self, now: Instant, peer: SocketAddr) -> bool {
        self.refused.get(&peer).is_some_and(|&until| now < until)
    }

    /// Returns until when a peer that speaks nothing but VXLAN is spoken to so; `None` of another.
    pub(super) fn spoken_to_in_plain_until(&self, peer: SocketAddr) -> Option<Instant> {
        self.until.get(&peer).copied()
    }

    /// Returns `true` if a peer is to be spoken to in plain VXLAN, and not to be asked.
    pub(super) fn is_spoken_to(&self, now: Instant, peer: SocketAddr) -> bool {
        self.until.get(&peer).is_some_and(|&until| now < until)
    }

    /// Returns `true` if a peer may be asked because of a plain frame, at most once in `every`. It counts as asked then.
    fn may_ask(&mut self, now: Instant, peer: SocketAddr, every: Duration) -> bool {
        let asked = self.asked.get(&peer).copied();
        let may = asked.is_none_or(|asked| now.since(asked) >= every);
        if may {
            self.asked.insert(peer, now);
        }
        may
    }
}

/// A plain frame, and the decision of its network.
struct PlainFrame<'a> {
    vni: Vni,
    peer: SocketAddr,
    frame: Frame,
    ethernet: &'a [u8],
    /// The place of its destination; `None` of a broadcast.
    place: Option<Place>,
    /// `true` if its source is believed.
    believed: bool,
    /// `true` if its peer is to be asked for a connection.
    ask: bool,
}

impl Switch {
    /// A frame arrived as plain VXLAN, from the host at `from`.
    pub fn handle_plain(
        &mut self,
        now: Instant,
        from: SocketAddr,
        vni: Vni,
        ethernet: &[u8],
        tenants: &mut impl Tenants,
    ) {
        match self.allows_in_clear(now, from, vni) {
            Ok(()) => self.handle_frame_of(now, from, false, vni, ethernet, tenants),
            Err(cause) => self.counters.drop_frame(cause),
        }
    }

    /// A frame arrived under the keys of a connection: its peer has sent it.
    pub fn handle_sealed(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        vni: Vni,
        ethernet: &[u8],
        tenants: &mut impl Tenants,
    ) {
        match self.endpoint.peer(connection) {
            Some(peer) => self.handle_frame_of(now, peer.address, true, vni, ethernet, tenants),
            None => self.counters.drop_frame(DropCause::UnknownPeer),
        }
    }

    /// Returns an error for a frame in the clear that must not be, or of a host of which it is not known yet whether it
    /// encrypts. Such a host is asked.
    fn allows_in_clear(
        &mut self,
        now: Instant,
        from: SocketAddr,
        vni: Vni,
    ) -> Result<(), DropCause> {
        match self.config.in_clear {
            InClear::Any => return Ok(()),
            InClear::Nothing => return Err(DropCause::InClear),
            InClear::Unable => {}
        }
        let network = self.networks.get(&vni).ok_or(DropCause::UnknownPeer)?;
        let known = network.peers.iter().find(|peer| peer.ip() == from.ip());
        let peer = *known.ok_or(DropCause::UnknownPeer)?;
        match (self.peers.encrypts(peer), self.peers.spoken_to_in_plain_until(peer)) {
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

    /// A frame arrived outside a pair's connection. `proven` says whether it is certain that `from` sent it.
    fn handle_frame_of(
        &mut self,
        now: Instant,
        from: SocketAddr,
        proven: bool,
        vni: Vni,
        ethernet: &[u8],
        tenants: &mut impl Tenants,
    ) {
        let plain = match self.learn_plain(now, from, proven, vni, ethernet) {
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
        self.give_plain(now, &plain, tenants);
    }

    /// A plain frame that arrived at another thread, which has counted it.
    pub(super) fn take_plain(
        &mut self,
        now: Instant,
        (from, proven): (SocketAddr, bool),
        vni: Vni,
        ethernet: &[u8],
        tenants: &mut impl Tenants,
    ) {
        if let Ok(plain) = self.learn_plain(now, from, proven, vni, ethernet) {
            self.give_plain(now, &plain, tenants);
        }
    }

    /// Finds the destination of a plain frame, and learns its source where that is believed.
    fn learn_plain<'a>(
        &mut self,
        now: Instant,
        from: SocketAddr,
        proven: bool,
        vni: Vni,
        ethernet: &'a [u8],
    ) -> Result<PlainFrame<'a>, DropCause> {
        let network = self.networks.get_mut(&vni).ok_or(DropCause::UnknownPeer)?;
        let known = network.peers.iter().find(|peer| peer.ip() == from.ip());
        let peer = *known.ok_or(DropCause::UnknownPeer)?;
        let frame = Frame::parse(ethernet, ethernet.len()).map_err(|_| DropCause::Malformed)?;
        let place = network.table.find(&frame, now);
        let until = self.peers.until.get(&peer);
        let proved = proven || !network.config.reliable;
        let believed = proved || until.is_some();
        let ask = !proved && until.is_none_or(|&until| until <= now);
        if believed {
            network.table.learn(&frame, ethernet, Place::Peer(peer), now);
        } else if place.is_none()
            && !network.table.introduce(&frame, ethernet, Place::Peer(peer), now)
        {
            self.ask_for_moved(now, vni, frame.source, peer);
        }
        Ok(PlainFrame { vni, peer, frame, ethernet, place, believed, ask })
    }

    /// Gives a plain frame to those of this thread's ports that it is for.
    fn give_plain(&mut self, now: Instant, plain: &PlainFrame<'_>, tenants: &mut impl Tenants) {
        let ports = match plain.place {
            Some(Place::Port(port)) if !self.ports.contains_key(&port) => Vec::new(),
            Some(Place::Port(port)) => {
                let may_answer = plain.ask && self.ask_for_pair(now, port, plain);
                if may_answer && !plain.believed {
                    return self.count(port).drop_frame(DropCause::Unproven);
                }
                Vec::from([port])
            }
            // It goes to no third host: two that took each other for the way would never stop.
            Some(Place::Peer(_)) => return self.counters.drop_frame(DropCause::NoRoute),
            None => self.others(plain.vni, None).collect(),
        };
        for port in ports {
            self.give(now, port, &[0; VirtioNetHeader::LEN], plain.ethernet, tenants);
        }
    }

    /// Asks a peer for the connection that a frame of its machine for `port` should have come on. Returns `false` if
    /// there is no room here for another connection, so that there is no other way than in plain.
    fn ask_for_pair(&mut self, now: Instant, port: PortId, plain: &PlainFrame<'_>) -> bool {
        let PlainFrame { vni, peer, frame, .. } = *plain;
        // A frame that a gateway passed on does not say whose it is.
        if frame.source == GATEWAY {
            return true;
        }
        let every = self.config.plain_for / ASKED_MEANWHILE;
        match self.pairs.sending((port, frame.source)) {
            None if self.peers.may_ask(now, peer, every) => {
                let pair = (frame.destination, frame.source);
                let asked = self.connect(now, vni, port, pair, peer).is_some();
                if !asked {
                    self.peers.asked.remove(&peer);
                }
                asked
            }
            None => true,
            // The peer may have forgotten the connection, or its paths have failed: a message finds out.
            Some(connection) => {
                let pair = self.pairs.get(connection);
                let is_its = |pair: &super::Pair| {
                    pair.state == State::Up && pair.leads_to(Place::Peer(peer))
                };
                if pair.is_some_and(is_its) && self.peers.may_ask(now, peer, every) {
                    self.greet(now, connection);
                }
                true
            }
        }
    }

    /// A frame that nothing proves the sender of says that a machine is at `peer`, which is known at another place. If the
    /// peer takes a connection for it, it has moved ([`on_greeted`](Self::on_greeted)).
    fn ask_for_moved(&mut self, now: Instant, vni: Vni, mac: MacAddr, peer: SocketAddr) {
        let joined = |&&port: &&PortId| self.pairs.sending((port, mac)).is_some();
        let ports: Vec<PortId> = self.others(vni, None).collect();
        let Some(&port) = ports.iter().find(joined).or_else(|| ports.first()) else {
            return;
        };
        let every = self.config.plain_for / ASKED_MEANWHILE;
        let own = self.ports.get(&port).and_then(|port| port.config.addresses.first().copied());
        if let Some(own) = own.filter(|_| self.peers.may_ask(now, peer, every)) {
            self.connect(now, vni, port, (own, mac), peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_peer_is_asked_once_a_second_whoever_forges_its_address() {
        let mut peers = KnownPeers::default();
        let peer = |last| SocketAddr::from((Ipv4Addr::new(10, 0, 0, last), 4789));
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let asked =
            (0..3_000).filter(|&millis| peers.may_ask(at(millis), peer(1), Duration::from_secs(1)));
        assert_eq!(asked.collect::<Vec<_>>(), [0, 1_000, 2_000]);
        assert!(peers.may_ask(at(2_500), peer(2), Duration::from_secs(1)));
    }
}
