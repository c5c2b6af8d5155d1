//! Connection tracking of a port, so that replies pass where requests did: the originator, state and expiry of each
//! connection. The timeouts follow RFC 5382, 4787 and 5508, except that those of UDP without a reply and of TCP after a
//! reset are shorter.
//!
//! The table has a fixed limit. A full table evicts connections without a reply for new ones; if all have a reply,
//! it refuses new ones.

use alloc::vec::Vec;
use core::hash::Hasher;
use core::net::IpAddr;

use hashbrown::HashTable;
use siphasher::sip::SipHasher13;
use weft_units::{Duration, Instant};

use crate::{Direction, Tcp, TcpFlags};

mod tcp;
mod tuple;

use tcp::TcpState;
pub(crate) use tuple::{Side, Tuple, quoted};

/// The limit on the number of connections, and the idle time after which each kind expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default, rename_all = "kebab-case"))]
pub struct ConnectionsConfig {
    /// Largest number of connections of a port.
    #[cfg_attr(feature = "serde", serde(alias = "most"))]
    pub max_connections: usize,
    /// Idle time-out of TCP after both sides opened it. 2 h 4 min (RFC 5382, REQ-5).
    pub tcp_established: Duration,
    /// Idle time-out of TCP while it opens, or after both sides closed it. 4 min (RFC 5382, REQ-5).
    pub tcp_transitory: Duration,
    /// Idle time-out of TCP after a reset. 10 s, for segments still in flight.
    pub tcp_reset: Duration,
    /// Idle time-out of UDP and other protocols after a reply. 5 min (RFC 4787, REQ-5).
    #[cfg_attr(feature = "serde", serde(alias = "answered"))]
    pub udp_established: Duration,
    /// Idle time-out of UDP and other protocols before a reply. 30 s.
    #[cfg_attr(feature = "serde", serde(alias = "unanswered"))]
    pub udp_unreplied: Duration,
    /// Idle time-out of ICMP queries such as echo. 60 s (RFC 5508, REQ-2).
    pub icmp: Duration,
}

impl Default for ConnectionsConfig {
    fn default() -> Self {
        Self {
            max_connections: 65_536,
            tcp_established: Duration::from_secs(7440),
            tcp_transitory: Duration::from_secs(240),
            tcp_reset: Duration::from_secs(10),
            udp_established: Duration::from_secs(300),
            udp_unreplied: Duration::from_secs(30),
            icmp: Duration::from_secs(60),
        }
    }
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionState {
    /// UDP or another protocol; no packet came back.
    UdpUnreplied,
    /// UDP or another protocol; both sides have sent.
    UdpEstablished,
    /// An ICMP query.
    Icmp,
    Tcp(TcpState),
}

/// A connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    tuple: Tuple,
    /// The side that sent its first packet.
    pub(crate) originator: Side,
    /// The direction of the originator's packets.
    direction: Direction,
    state: ConnectionState,
    /// The time at which it expires.
    expires_at: Instant,
    /// The generation of the rules that allowed it; the rules are applied again when the generation changes.
    pub(crate) generation: u32,
}

/// The connections of one port.
#[derive(Debug)]
pub(crate) struct Connections {
    config: ConnectionsConfig,
    /// The key of the hash: without it no sender can choose packets that lengthen the table's chains.
    secret: (u64, u64),
    slots: Vec<Option<Connection>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    /// The slot that the last scan for expired connections visited.
    cursor: usize,
}

/// Number of slots scanned when a connection is added: more than one, so that expired ones are removed faster than new
/// ones come.
const SLOTS_SCANNED: usize = 4;
/// Maximum number of slots scanned for a connection to evict when the table is full.
const SLOTS_SCANNED_WHEN_FULL: usize = 256;

impl Connections {
    pub(crate) fn new(config: ConnectionsConfig, secret: (u64, u64)) -> Self {
        Self {
            config,
            secret,
            slots: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            cursor: 0,
        }
    }

    /// Sets the limit for new connections, and the time-outs from each connection's next packet on.
    pub(crate) fn set_config(&mut self, config: ConnectionsConfig) {
        self.config = config;
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    fn hash(secret: (u64, u64), tuple: &Tuple) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(secret.0, secret.1);
        let word = |address| match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let [low, high] = tuple.ends();
        hasher.write_u128(word(low.0));
        hasher.write_u128(word(high.0));
        let ports = u64::from(low.1) << 16 | u64::from(high.1);
        hasher.write_u64(u64::from(tuple.protocol()) << 32 | ports);
        hasher.finish()
    }

    /// Returns the slot of a tuple's connection, expired or not.
    fn slot(&self, tuple: &Tuple) -> Option<u32> {
        let same = |slot: &u32| self.at(*slot).is_some_and(|known| known.tuple == *tuple);
        self.index.find(Self::hash(self.secret, tuple), same).copied()
    }

    fn at(&self, slot: u32) -> Option<&Connection> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// Returns the connection of a packet unless it is unknown or expired.
    pub(crate) fn find(&self, tuple: &Tuple, now: Instant) -> Option<&Connection> {
        self.at(self.slot(tuple)?).filter(|known| now < known.expires_at)
    }

    /// Returns the connection of a packet, mutable, unless it is unknown or expired.
    pub(crate) fn find_mut(&mut self, tuple: &Tuple, now: Instant) -> Option<&mut Connection> {
        let slot = self.slot(tuple)?;
        self.slots[slot as usize].as_mut().filter(|known| now < known.expires_at)
    }

    /// Updates a connection's state and expiry for a packet from `from`.
    pub(crate) fn advance(&mut self, tuple: &Tuple, from: Side, tcp: Option<&Tcp>, now: Instant) {
        let config = self.config;
        let Some(known) = self.find_mut(tuple, now) else { return };
        let is_reply = from != known.originator;
        match (&mut known.state, tcp) {
            (ConnectionState::Tcp(state), Some(tcp)) => state.advance(tcp, is_reply),
            (state @ ConnectionState::UdpUnreplied, _) if is_reply => {
                *state = ConnectionState::UdpEstablished
            }
            _ => {}
        }
        known.expires_at = now + known.state.lifetime(&config);
    }

    /// Adds a connection that `originator` begins, in place of an earlier one of the same tuple. Returns `false` if the
    /// table is full.
    pub(crate) fn add(
        &mut self,
        tuple: Tuple,
        (originator, direction): (Side, Direction),
        tcp: Option<&Tcp>,
        generation: u32,
        now: Instant,
    ) -> bool {
        self.remove(&tuple);
        self.sweep(SLOTS_SCANNED, now);
        if self.index.len() >= self.config.max_connections && !self.make_room(now) {
            return false;
        }
        let state = match tcp {
            Some(tcp) => ConnectionState::Tcp(TcpState::begin(tcp)),
            None if tuple.is_icmp() => ConnectionState::Icmp,
            None => ConnectionState::UdpUnreplied,
        };
        let expires_at = now + state.lifetime(&self.config);
        let connection = Connection { tuple, originator, direction, state, expires_at, generation };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("a table of at most 2^32 connections")
        });
        self.slots[slot as usize] = Some(connection);
        let Self { index, slots, secret, .. } = self;
        let rehash = |slot: &u32| {
            let known = slots[*slot as usize].as_ref().expect("an indexed slot is taken");
            Self::hash(*secret, &known.tuple)
        };
        index.insert_unique(Self::hash(*secret, &tuple), slot, rehash);
        true
    }

    pub(crate) fn remove(&mut self, tuple: &Tuple) {
        if let Some(slot) = self.slot(tuple) {
            self.remove_slot(slot);
        }
    }

    /// Removes the connection in a slot that is taken.
    fn remove_slot(&mut self, slot: u32) {
        let known = self.slots[slot as usize].take().expect("an indexed slot is taken");
        let hash = Self::hash(self.secret, &known.tuple);
        let entry = self.index.find_entry(hash, |known| *known == slot);
        entry.expect("a taken slot is indexed").remove();
        self.free.push(slot);
    }

    /// Scans the next `count` slots and removes expired connections.
    pub(crate) fn sweep(&mut self, count: usize, now: Instant) {
        for _ in 0..count.min(self.slots.len()) {
            let slot = self.advance_cursor();
            if self.slots[slot as usize].as_ref().is_some_and(|known| known.expires_at <= now) {
                self.remove_slot(slot);
            }
        }
    }

    fn advance_cursor(&mut self) -> u32 {
        self.cursor = (self.cursor + 1) % self.slots.len();
        u32::try_from(self.cursor).expect("a table of at most 2^32 connections")
    }

    /// Evicts one connection that has expired or has no reply. Returns `false` if the scan finds none.
    fn make_room(&mut self, now: Instant) -> bool {
        for _ in 0..SLOTS_SCANNED_WHEN_FULL.min(self.slots.len()) {
            let slot = self.advance_cursor();
            let known = self.slots[slot as usize].as_ref();
            if known.is_some_and(|known| known.expires_at <= now || known.state.is_unreplied()) {
                self.remove_slot(slot);
                return true;
            }
        }
        false
    }
}

impl Connection {
    /// Returns the direction of a packet of this connection that `from` sent.
    pub(crate) fn direction_of(&self, from: Side) -> Direction {
        if from == self.originator { self.direction } else { self.direction.reverse() }
    }

    /// Returns `true` if the segment opens a new connection between the same ports after this one ended.
    pub(crate) fn may_reopen(&self, tcp: Option<&Tcp>) -> bool {
        let opens =
            tcp.is_some_and(|tcp| tcp.flags.any(TcpFlags::SYN) && !tcp.flags.any(TcpFlags::ACK));
        matches!(self.state, ConnectionState::Tcp(state) if opens && state.is_over())
    }
}

impl ConnectionState {
    /// Returns the idle timeout of a connection in this state.
    const fn lifetime(self, config: &ConnectionsConfig) -> Duration {
        match self {
            Self::UdpUnreplied => config.udp_unreplied,
            Self::UdpEstablished => config.udp_established,
            Self::Icmp => config.icmp,
            Self::Tcp(state) if state.is_established() => config.tcp_established,
            Self::Tcp(state) if state.is_reset() => config.tcp_reset,
            Self::Tcp(_) => config.tcp_transitory,
        }
    }

    /// Returns `true` if a full table may evict the connection: UDP and TCP without a reply, ICMP, and TCP
    /// after a reset.
    const fn is_unreplied(self) -> bool {
        match self {
            Self::UdpUnreplied | Self::Icmp => true,
            Self::UdpEstablished => false,
            Self::Tcp(state) => state.is_unreplied(),
        }
    }
}
