//! Connections that pass a port, so that answers pass where questions did: who began each, how far it
//! is, and until when it is remembered. Time-outs are those that RFC 5382, 4787 and 5508 ask of
//! middleboxes.
//!
//! The table has room for so many. What was not answered makes room for what is new; a table full of
//! answered connections takes no more.

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

/// How long connections are remembered without a packet, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default, rename_all = "kebab-case"))]
pub struct ConnectionsConfig {
    /// Connections at most.
    pub most: usize,
    /// TCP that both sides opened. 2 h 4 min (RFC 5382, REQ-5).
    pub tcp_established: Duration,
    /// TCP that is being opened, or closed by both sides. 4 min (RFC 5382, REQ-5).
    pub tcp_transitory: Duration,
    /// TCP that was reset. 10 s, for segments still under way.
    pub tcp_reset: Duration,
    /// UDP and others that were answered. 5 min (RFC 4787, REQ-5).
    pub answered: Duration,
    /// UDP and others that were not answered. 30 s.
    pub unanswered: Duration,
    /// Echo requests and the like. 60 s (RFC 5508, REQ-2).
    pub icmp: Duration,
}

impl Default for ConnectionsConfig {
    fn default() -> Self {
        Self {
            most: 65_536,
            tcp_established: Duration::from_secs(7440),
            tcp_transitory: Duration::from_secs(240),
            tcp_reset: Duration::from_secs(10),
            answered: Duration::from_secs(300),
            unanswered: Duration::from_secs(30),
            icmp: Duration::from_secs(60),
        }
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Nothing came back.
    Unanswered,
    Answered,
    Icmp,
    Tcp(TcpState),
}

/// A connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    tuple: Tuple,
    /// Who began it.
    pub(crate) originator: Side,
    /// Which way it began: packets of its originator go no other way.
    direction: Direction,
    progress: Progress,
    until: Instant,
    /// Which rules let it begin: asked again when there are others.
    pub(crate) generation: u32,
}

/// The connections of one port.
#[derive(Debug)]
pub(crate) struct Connections {
    config: ConnectionsConfig,
    /// A table whose chains nobody can make long who does not know this.
    secret: (u64, u64),
    slots: Vec<Option<Connection>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    /// The slot that is looked at next for what is over.
    hand: usize,
}

/// Slots looked at when a connection is added: more than one, so that the table is cleared faster than
/// it is filled.
const LOOKED_AT: usize = 4;
/// Slots looked at for one to give up when the table is full.
const LOOKED_AT_WHEN_FULL: usize = 256;

impl Connections {
    pub(crate) fn new(config: ConnectionsConfig, secret: (u64, u64)) -> Self {
        Self {
            config,
            secret,
            slots: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            hand: 0,
        }
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

    fn slot(&self, tuple: &Tuple) -> Option<u32> {
        let same = |slot: &u32| self.at(*slot).is_some_and(|known| known.tuple == *tuple);
        self.index.find(Self::hash(self.secret, tuple), same).copied()
    }

    fn at(&self, slot: u32) -> Option<&Connection> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// The connection of a packet, if it is remembered.
    pub(crate) fn find(&self, tuple: &Tuple, now: Instant) -> Option<&Connection> {
        self.at(self.slot(tuple)?).filter(|known| now < known.until)
    }

    /// The connection of a packet, to be changed.
    pub(crate) fn find_mut(&mut self, tuple: &Tuple, now: Instant) -> Option<&mut Connection> {
        let slot = self.slot(tuple)?;
        self.slots[slot as usize].as_mut().filter(|known| now < known.until)
    }

    /// A packet of a connection came from `from`.
    pub(crate) fn advance(&mut self, tuple: &Tuple, from: Side, tcp: Option<&Tcp>, now: Instant) {
        let config = self.config;
        let Some(known) = self.find_mut(tuple, now) else { return };
        let answer = from != known.originator;
        match (&mut known.progress, tcp) {
            (Progress::Tcp(state), Some(tcp)) => state.advance(tcp, answer),
            (progress @ Progress::Unanswered, _) if answer => *progress = Progress::Answered,
            _ => {}
        }
        known.until = now + known.progress.lifetime(&config);
    }

    /// Remembers a connection that `originator` begins. False when there is no room.
    pub(crate) fn add(
        &mut self,
        tuple: Tuple,
        (originator, direction): (Side, Direction),
        tcp: Option<&Tcp>,
        generation: u32,
        now: Instant,
    ) -> bool {
        self.remove(&tuple);
        self.clear(LOOKED_AT, now);
        if self.index.len() >= self.config.most && !self.make_room(now) {
            return false;
        }
        let progress = match tcp {
            Some(tcp) => Progress::Tcp(TcpState::begin(tcp)),
            None if tuple.is_icmp() => Progress::Icmp,
            None => Progress::Unanswered,
        };
        let until = now + progress.lifetime(&self.config);
        let connection = Connection { tuple, originator, direction, progress, until, generation };
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
            self.take(slot);
        }
    }

    fn take(&mut self, slot: u32) {
        let known = self.slots[slot as usize].take().expect("an indexed slot is taken");
        let hash = Self::hash(self.secret, &known.tuple);
        let entry = self.index.find_entry(hash, |known| *known == slot);
        entry.expect("a taken slot is indexed").remove();
        self.free.push(slot);
    }

    /// Looks at the next `count` slots and takes away what is over.
    pub(crate) fn clear(&mut self, count: usize, now: Instant) {
        for _ in 0..count.min(self.slots.len()) {
            let slot = self.turn();
            if self.slots[slot as usize].as_ref().is_some_and(|known| known.until <= now) {
                self.take(slot);
            }
        }
    }

    fn turn(&mut self) -> u32 {
        self.hand = (self.hand + 1) % self.slots.len();
        u32::try_from(self.hand).expect("a table of at most 2^32 connections")
    }

    /// Gives up a connection that is over or was not answered.
    fn make_room(&mut self, now: Instant) -> bool {
        for _ in 0..LOOKED_AT_WHEN_FULL.min(self.slots.len()) {
            let slot = self.turn();
            let known = self.slots[slot as usize].as_ref();
            if known.is_some_and(|known| known.until <= now || known.progress.is_unanswered()) {
                self.take(slot);
                return true;
            }
        }
        false
    }
}

impl Connection {
    /// Which way a packet of `from` goes, if it is of this connection.
    pub(crate) fn direction_of(&self, from: Side) -> Direction {
        if from == self.originator { self.direction } else { self.direction.reverse() }
    }

    /// Whether a segment that opens a connection begins another one under the same ports.
    pub(crate) fn may_begin_again(&self, tcp: Option<&Tcp>) -> bool {
        let opens =
            tcp.is_some_and(|tcp| tcp.flags.any(TcpFlags::SYN) && !tcp.flags.any(TcpFlags::ACK));
        matches!(self.progress, Progress::Tcp(state) if opens && state.is_over())
    }
}

impl Progress {
    const fn lifetime(self, config: &ConnectionsConfig) -> Duration {
        match self {
            Self::Unanswered => config.unanswered,
            Self::Answered => config.answered,
            Self::Icmp => config.icmp,
            Self::Tcp(state) if state.is_established() => config.tcp_established,
            Self::Tcp(state) if state.is_reset() => config.tcp_reset,
            Self::Tcp(_) => config.tcp_transitory,
        }
    }

    const fn is_unanswered(self) -> bool {
        match self {
            Self::Unanswered | Self::Icmp => true,
            Self::Answered => false,
            Self::Tcp(state) => state.is_unanswered(),
        }
    }
}
