//! Connections, one for each pair of vNICs (BIFROST, section 7.2): what waits for them, what is under
//! way on them, and what arrives on them.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use core::net::SocketAddr;

use weft_transport::ConnectionId;
use weft_wire::MacAddr;

use super::incoming::{After, Arriving};
use super::{PortId, Token, Vni};

/// A vNIC of this host and one of another.
pub(super) type PairKey = (PortId, MacAddr);

/// How far a pair has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The peer was asked.
    Connecting,
    /// Messages flow.
    Up,
}

/// A frame on its way out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    pub(super) token: Token,
    /// Its length with its virtio-net header, bytes.
    pub(super) len: u32,
    /// What it has in common with the other frames of its flow.
    pub(super) flow: u16,
}

/// Both ends of a connection.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) vni: Vni,
    pub(super) port: PortId,
    /// The vNIC of this host, as the pair's hello names it.
    pub(super) local: MacAddr,
    pub(super) remote: MacAddr,
    pub(super) peer: SocketAddr,
    /// The peer's thread, once it has said so.
    pub(super) peer_thread: Option<u8>,
    pub(super) state: State,
    /// Frames that wait for the connection.
    pub(super) waiting: VecDeque<Outgoing>,
    /// Frames submitted and not acknowledged, and the numbers of their messages, the oldest first.
    pub(super) sent: VecDeque<(Outgoing, u32)>,
    /// Number of the next message.
    pub(super) next: u32,
    pub(super) arriving: Arriving,
}

impl Pair {
    /// A pair of the vNICs `local` and `remote`, on whose connection nothing has happened.
    pub(super) fn new(
        vni: Vni,
        port: PortId,
        (local, remote): (MacAddr, MacAddr),
        peer: SocketAddr,
        state: State,
    ) -> Self {
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

    /// After what the peer's tenant may see the next frame of a flow: the last of the same flow of which
    /// it is not known that the tenant has seen it. A frame that was acknowledged waits at most for one
    /// that was not, and that one is found here.
    pub(super) fn after(&self, flow: u16) -> After {
        let same = self.sent.iter().rev().find(|(frame, _)| frame.flow == flow);
        After::of(self.next, same.map(|&(_, number)| number))
    }

    /// The frame was acknowledged.
    pub(super) fn acknowledged(&mut self, token: Token) {
        if let Some(index) = self.sent.iter().position(|(sent, _)| sent.token == token) {
            self.sent.remove(index);
        }
    }

    /// Everything that the port must have back.
    pub(super) fn into_tokens(self) -> impl Iterator<Item = Token> {
        let sent = self.sent.into_iter().map(|(frame, _)| frame);
        sent.chain(self.waiting).map(|frame| frame.token)
    }
}

/// All pairs.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    by_connection: BTreeMap<ConnectionId, Pair>,
    /// The connection to send on. There may be two where both ends asked at once; each end then sends
    /// on the one it asked for.
    sending: BTreeMap<PairKey, ConnectionId>,
}

impl Pairs {
    pub(super) fn get(&self, connection: ConnectionId) -> Option<&Pair> {
        self.by_connection.get(&connection)
    }

    pub(super) fn get_mut(&mut self, connection: ConnectionId) -> Option<&mut Pair> {
        self.by_connection.get_mut(&connection)
    }

    /// The connection frames of a pair go out on.
    pub(super) fn sending(&self, key: PairKey) -> Option<ConnectionId> {
        self.sending.get(&key).copied()
    }

    /// Keeps a pair, and sends on it unless another connection joins the same vNICs already.
    pub(super) fn insert(&mut self, connection: ConnectionId, pair: Pair) {
        self.sending.entry((pair.port, pair.remote)).or_insert(connection);
        self.by_connection.insert(connection, pair);
    }

    /// Forgets a pair. Another connection that joins the same vNICs is sent on from here on.
    pub(super) fn remove(&mut self, connection: ConnectionId) -> Option<Pair> {
        let pair = self.by_connection.remove(&connection)?;
        let key = (pair.port, pair.remote);
        if self.sending(key) == Some(connection) {
            self.sending.remove(&key);
            let same = |(_, other): &(&ConnectionId, &Pair)| (other.port, other.remote) == key;
            if let Some((&other, _)) = self.by_connection.iter().find(same) {
                self.sending.insert(key, other);
            }
        }
        Some(pair)
    }

    /// The connections of a port.
    pub(super) fn of_port(&self, port: PortId) -> Vec<ConnectionId> {
        let own = |(&id, pair): (&ConnectionId, &Pair)| (pair.port == port).then_some(id);
        self.by_connection.iter().filter_map(own).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Pair)> {
        self.by_connection.iter().map(|(&id, pair)| (id, pair))
    }
}
