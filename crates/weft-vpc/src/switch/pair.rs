//! Connections, one for each pair of vNICs (BIFROST, section 7.2): their waiting frames, their frames in
//! flight, and their arriving frames.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use core::net::SocketAddr;

use weft_transport::ConnectionId;
use weft_wire::MacAddr;

use super::incoming::{After, Arriving};
use super::{Place, PortId, Token, Vni};

/// A vNIC of this host and one of another host.
pub(super) type PairKey = (PortId, MacAddr);

/// The two vNICs that a connection joins, and their hosts.
#[derive(Clone, Copy, Debug)]
pub(super) struct VnicPair {
    pub(super) vni: Vni,
    pub(super) port: PortId,
    /// The vNIC of this host, as the pair's hello names it.
    pub(super) local: MacAddr,
    pub(super) remote: MacAddr,
    /// The host of `remote`.
    pub(super) peer: SocketAddr,
}

/// The state of a pair's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A request was sent.
    Connecting,
    /// The connection is set up.
    Up,
}

/// A frame to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    pub(super) token: Token,
    /// Length of the frame with its virtio-net header, bytes.
    pub(super) len: u32,
    /// A hash that the frames of its flow share.
    pub(super) flow: u16,
}

/// The two vNICs that a connection joins, and their frames.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) vni: Vni,
    pub(super) port: PortId,
    /// The vNIC of this host, as the pair's hello names it.
    pub(super) local: MacAddr,
    pub(super) remote: MacAddr,
    pub(super) peer: SocketAddr,
    /// The peer's thread; `None` until the peer has sent it.
    pub(super) peer_thread: Option<u8>,
    pub(super) state: State,
    /// Frames that wait for the connection.
    pub(super) waiting: VecDeque<Outgoing>,
    /// Frames submitted and not acknowledged, with their messages' numbers, the oldest first.
    pub(super) sent: VecDeque<(Outgoing, u32)>,
    /// The number of the next message.
    pub(super) next: u32,
    pub(super) arriving: Arriving,
}

impl Pair {
    /// Creates a pair with an unused connection.
    pub(super) fn new(vnics: VnicPair, state: State) -> Self {
        let VnicPair { vni, port, local, remote, peer } = vnics;
        Self {
            vni,
            port,
            local,
            remote,
            peer,
            peer_thread: None,
            state,
            waiting: VecDeque::new(),
            sent: VecDeque::new(),
            next: 0,
            arriving: Arriving::default(),
        }
    }

    /// Returns `true` if `place` is the host at the connection's other end.
    pub(super) fn leads_to(&self, place: Place) -> bool {
        place.is_host(self.peer)
    }

    /// Returns the message after which the peer's tenant may see the next frame of a flow: the flow's last
    /// unacknowledged one. An acknowledged frame waits at most for one that is not acknowledged, which this search
    /// finds.
    pub(super) fn after(&self, flow: u16) -> After {
        let same = self.sent.iter().rev().find(|(frame, _)| frame.flow == flow);
        After::of(self.next, same.map(|&(_, number)| number))
    }

    /// Removes a frame that was acknowledged.
    pub(super) fn acknowledged(&mut self, token: Token) {
        if let Some(index) = self.sent.iter().position(|(sent, _)| sent.token == token) {
            self.sent.remove(index);
        }
    }

    /// Returns the frames that were not acknowledged, the oldest first.
    pub(super) fn into_frames(self) -> impl Iterator<Item = Outgoing> {
        let sent = self.sent.into_iter().map(|(frame, _)| frame);
        sent.chain(self.waiting)
    }

    /// Returns the tokens of all frames, which the port must release.
    pub(super) fn into_tokens(self) -> impl Iterator<Item = Token> {
        self.into_frames().map(|frame| frame.token)
    }
}

/// All pairs of a switch.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    by_connection: BTreeMap<ConnectionId, Pair>,
    /// The connection on which each pair sends.
    sending: BTreeMap<PairKey, ConnectionId>,
    /// Other connections that join the same vNICs, if both ends requested one at once; each end then sends on the
    /// one it requested.
    spare: BTreeSet<(PortId, MacAddr, ConnectionId)>,
}

impl Pairs {
    pub(super) fn get(&self, connection: ConnectionId) -> Option<&Pair> {
        self.by_connection.get(&connection)
    }

    pub(super) fn get_mut(&mut self, connection: ConnectionId) -> Option<&mut Pair> {
        self.by_connection.get_mut(&connection)
    }

    /// Returns the connection on which a pair sends.
    pub(super) fn sending(&self, key: PairKey) -> Option<ConnectionId> {
        self.sending.get(&key).copied()
    }

    /// Adds a pair, and sends on its connection unless another one joins the same vNICs already.
    pub(super) fn insert(&mut self, connection: ConnectionId, pair: Pair) {
        let (port, remote) = (pair.port, pair.remote);
        if *self.sending.entry((port, remote)).or_insert(connection) != connection {
            self.spare.insert((port, remote, connection));
        }
        self.by_connection.insert(connection, pair);
    }

    /// Removes a pair. If another connection joins the same vNICs, the pair sends on that one from here on.
    pub(super) fn remove(&mut self, connection: ConnectionId) -> Option<Pair> {
        let pair = self.by_connection.remove(&connection)?;
        let (port, remote) = (pair.port, pair.remote);
        if self.sending((port, remote)) != Some(connection) {
            self.spare.remove(&(port, remote, connection));
            return Some(pair);
        }
        self.sending.remove(&(port, remote));
        if let Some(&other) = self.joining((port, remote)).first() {
            self.spare.remove(&(port, remote, other));
            self.sending.insert((port, remote), other);
        }
        Some(pair)
    }

    /// Returns the connections that join two vNICs.
    pub(super) fn joining(&self, (port, remote): PairKey) -> Vec<ConnectionId> {
        let spare = (port, remote, ConnectionId(0))..=(port, remote, ConnectionId(u32::MAX));
        let spare = self.spare.range(spare).map(|row| row.2);
        self.sending((port, remote)).into_iter().chain(spare).collect()
    }

    /// Returns the connections of a port.
    pub(super) fn of_port(&self, port: PortId) -> Vec<ConnectionId> {
        let (first, last) = (MacAddr([0; 6]), MacAddr([0xff; 6]));
        let sending = self.sending.range((port, first)..=(port, last)).map(|row| *row.1);
        let spare = (port, first, ConnectionId(0))..=(port, last, ConnectionId(u32::MAX));
        sending.chain(self.spare.range(spare).map(|row| row.2)).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.by_connection.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Pair)> {
        self.by_connection.iter().map(|(&id, pair)| (id, pair))
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small random numbers")]
mod tests {
    use core::net::Ipv4Addr;

    use weft_units::Seed;

    use super::*;

    /// Checks under random additions and removals that each pair of vNICs with connections sends on one of them, on
    /// the same while it exists, and that a port finds all its connections.
    #[test]
    fn connections_that_join_the_same_vnics_take_over_from_each_other() {
        let vni = Vni::new(7).unwrap();
        let peer = (Ipv4Addr::LOCALHOST, 4789).into();
        for seed in 0..20 {
            let mut rng = Seed(seed).rng();
            let mut pairs = Pairs::default();
            let mut model: BTreeMap<ConnectionId, PairKey> = BTreeMap::new();
            for number in 0..400 {
                let key =
                    (PortId(rng.below(3) as u32), MacAddr([0, 0, 0, 0, 0, rng.below(4) as u8]));
                let before = pairs.sending(key);
                if rng.below(2) == 0 {
                    let (port, remote) = key;
                    let vnics = VnicPair { vni, port, local: MacAddr([9; 6]), remote, peer };
                    let id = ConnectionId(number);
                    pairs.insert(id, Pair::new(vnics, State::Up));
                    model.insert(id, key);
                    assert_eq!(pairs.sending(key), before.or(Some(id)));
                } else if let Some(id) = model.keys().nth(rng.below(20) as usize).copied() {
                    assert_eq!(
                        pairs.remove(id).map(|pair| (pair.port, pair.remote)),
                        model.remove(&id)
                    );
                    assert!(pairs.remove(id).is_none());
                }
                for key in model.values() {
                    let sending = pairs.sending(*key).expect("it has a connection");
                    assert_eq!(model[&sending], *key, "seed {seed}");
                }
                assert_eq!((pairs.len(), pairs.iter().count()), (model.len(), model.len()));
                for key in (0..3).flat_map(|port| {
                    (0..4).map(move |mac| (PortId(port), MacAddr([0, 0, 0, 0, 0, mac])))
                }) {
                    let mut joining = pairs.joining(key);
                    assert_eq!(joining.first().copied(), pairs.sending(key));
                    joining.sort_unstable();
                    let known = model.iter().filter(|row| *row.1 == key).map(|row| *row.0);
                    assert!(joining.into_iter().eq(known), "seed {seed}");
                }
                for port in (0..3).map(PortId) {
                    let mut own = pairs.of_port(port);
                    own.sort_unstable();
                    let known = model.iter().filter(|(_, key)| key.0 == port).map(|row| *row.0);
                    assert!(own.into_iter().eq(known), "seed {seed}");
                }
            }
        }
    }
}
