//! The connections of one endpoint: their exchanges and their keys. What leaves is wrapped, what arrives is opened;
//! what sets connections up is read in `admission.rs`.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::hash::{BuildHasherDefault, Hasher};
use core::net::SocketAddr;
use core::ops::Range;

use hashbrown::{HashMap, HashSet};
use weft_transport::{ConnectionId, Forgotten};
use weft_units::Instant;
use weft_wire::{Content, DataHeader, Packet, ParseError, SealedHeader, SetupHeader, SetupKind};

use crate::budget::Budget;
use crate::channel::Channel;
use crate::entropy::Entropy;
use crate::exchange::{Answering, Asking};
use crate::identity::Hex;
use crate::{Mode, PrivateKey, PublicKey, SealConfig, SealCounters};

mod admission;
#[cfg(test)]
mod tests;

/// Why a packet is not opened. It is dropped, and was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The header is none.
    #[error(transparent)]
    Header(#[from] ParseError),
    /// Too short for what authenticates it, or for a packet.
    #[error("{got} bytes after the sealed header; a tag and a packet take more")]
    TooShort {
        /// Bytes there.
        got: usize,
    },
    /// Of a connection that is not known here. The sender is told by a reset.
    #[error("no keys are known for connection {:#010x}", connection.0)]
    UnknownKey {
        /// The connection id in the packet.
        connection: ConnectionId,
        /// Low half of the packet's number.
        iv: u32,
    },
    /// Of a connection whose accept has not arrived: it comes again.
    #[error("connection {:#010x} is not accepted yet", connection.0)]
    Early {
        /// The connection.
        connection: ConnectionId,
    },
    /// Changed on the way, made up, or under another key.
    #[error("connection {:#010x}: the packet is not authentic", connection.0)]
    NotAuthentic {
        /// The connection.
        connection: ConnectionId,
    },
    /// Received before, or so old that this is not known.
    #[error("connection {:#010x}: packet {iv} was received before, or is older than 65,536 packets", connection.0)]
    Replayed {
        /// The connection.
        connection: ConnectionId,
        /// The packet's number.
        iv: u64,
    },
    /// In the clear, on a connection that is encrypted, or where all must be.
    #[error("connection {:#010x} is encrypted, the packet is not", connection.0)]
    InClear {
        /// The connection.
        connection: ConnectionId,
    },
}

/// Lines for a file of keys that nobody has asked for; older ones are lost.
const MAX_KEY_LINES: usize = 4_096;

/// Lines for a file of keys. They are not shown.
#[derive(Default)]
struct KeyLines(VecDeque<String>);

impl fmt::Debug for KeyLines {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "KeyLines({}, ..)", self.0.len())
    }
}

/// How a packet leaves; see [`Seals::wrap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrap {
    /// As it is.
    Clear,
    /// Not at all: nothing says that it may be in the clear. Zeros leave in its place, which are no packet.
    Void,
    /// Encrypted, under the keys of this connection.
    Sealed(ConnectionId),
    /// With so many bytes of a key exchange behind it.
    Exchange {
        /// The connection that is set up.
        connection: ConnectionId,
        /// Bytes.
        length: u16,
    },
}

impl Wrap {
    /// Returns the bytes that it adds to a packet.
    #[inline]
    pub const fn len(self) -> usize {
        match self {
            Self::Clear | Self::Void => 0,
            Self::Sealed(_) => SealedHeader::OVERHEAD,
            Self::Exchange { length, .. } => length as usize,
        }
    }

    /// Returns `true` if it adds nothing.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the part of a datagram that the packet goes into. Its first `clear` bytes are before it.
    #[inline]
    pub fn inside_mut(self, clear: usize, datagram: &mut [u8]) -> &mut [u8] {
        let inside = self.inside(clear, datagram.len());
        &mut datagram[inside]
    }

    /// Returns where the packet goes in a datagram of `len` bytes whose first `clear` bytes are before it.
    #[inline]
    pub const fn inside(self, clear: usize, len: usize) -> Range<usize> {
        match self {
            Self::Clear | Self::Void => clear..len,
            Self::Sealed(_) => clear + SealedHeader::LEN..len - SealedHeader::TAG_LEN,
            Self::Exchange { length, .. } => clear..len - length as usize,
        }
    }
}

/// The encryption of one endpoint's connections.
///
/// For each packet that leaves: [`wrap`](Self::wrap), room for that much more, the packet where
/// [`Wrap::inside`] says, [`seal`](Self::seal). For each that arrives: [`open`](Self::open); a packet of set-up also
/// goes through [`admit`](Self::admit), whose answer the endpoint takes (`Endpoint::handle_admission`).
#[derive(Debug)]
pub struct Seals {
    config: SealConfig,
    identity: PrivateKey,
    random: Entropy,
    /// Boxed: a table has places to spare, and a channel is long.
    channels: Table<Box<Channel>>,
    /// Connections that are known not to be encrypted. What is in neither table does not leave.
    clear: HashSet<ConnectionId, BuildHasherDefault<IdHasher>>,
    asking: Table<Asking>,
    /// Requests that were taken in and whose accept has not left, by who asked: address, receive port, connection id.
    /// `None` for a peer that cannot encrypt.
    answering: BTreeMap<(SocketAddr, u32), Option<Box<Answering>>>,
    budget: Budget,
    /// Counts the times that keys were due to change.
    epoch: u32,
    change_keys_at: Instant,
    key_log: KeyLines,
    counters: SealCounters,
}

type Table<T> = HashMap<ConnectionId, T, BuildHasherDefault<IdHasher>>;

impl Seals {
    /// Bytes that encryption adds to a packet: an endpoint that may encrypt has so much smaller packets.
    pub const OVERHEAD: u16 = 28;

    /// Returns the encryption of an endpoint without connections. `entropy` comes from the operating system, for each
    /// endpoint anew; in a simulation from the seed.
    pub fn new(config: SealConfig, entropy: [u8; 32]) -> Self {
        let mut random = Entropy::new(entropy);
        let identity = config.identity.clone();
        let identity = identity.unwrap_or_else(|| PrivateKey::new(random.draw()));
        Self {
            config,
            identity,
            random,
            channels: Table::default(),
            clear: HashSet::default(),
            asking: Table::default(),
            answering: BTreeMap::new(),
            budget: Budget::new(),
            epoch: 0,
            change_keys_at: Instant::EPOCH,
            key_log: KeyLines::default(),
            counters: SealCounters::default(),
        }
    }

    /// Returns `true` if connections may be encrypted.
    #[inline]
    pub const fn is_on(&self) -> bool {
        !matches!(self.config.mode, Mode::Off)
    }

    /// Returns the identity that peers are shown.
    pub fn identity(&self) -> PublicKey {
        self.identity.public()
    }

    /// Returns how packet `packet` of `connection` to `to` leaves. The first request and the accept of a connection
    /// compute keys here, some hundred microseconds.
    #[inline]
    pub fn wrap(
        &mut self,
        to: &SocketAddr,
        connection: Option<ConnectionId>,
        packet: &Packet,
    ) -> Wrap {
        let Some(connection) = connection else { return Wrap::Clear };
        if !self.is_on() {
            return Wrap::Clear;
        }
        match packet {
            Packet::Setup(header) if header.kind.carries_terms() => {
                self.wrap_exchange(to, connection, header)
            }
            _ if self.channels.contains_key(&connection) => Wrap::Sealed(connection),
            _ if self.clear.contains(&connection) => Wrap::Clear,
            // A close before the peer has answered, which says nothing.
            Packet::Setup(_) if self.asking.contains_key(&connection) => Wrap::Clear,
            _ => Wrap::Void,
        }
    }

    /// Returns how a tenant's frame leaves that is of no connection: under the keys of this one, if it has any.
    #[inline]
    pub fn wrap_frame(&self, connection: ConnectionId) -> Option<Wrap> {
        self.channels.contains_key(&connection).then_some(Wrap::Sealed(connection))
    }

    #[cold]
    fn wrap_exchange(
        &mut self,
        to: &SocketAddr,
        connection: ConnectionId,
        header: &SetupHeader,
    ) -> Wrap {
        let extension = match header.kind {
            SetupKind::Request => self.ask(connection, header),
            _ => self.accept(*to, connection, header),
        };
        let length = |bytes: &[u8]| u16::try_from(bytes.len()).expect("some hundred bytes");
        match extension.map(length) {
            Some(length) => Wrap::Exchange { connection, length },
            // Once more, though the peer has shown that it has it; or of a connection that is not encrypted.
            None if self.channels.contains_key(&connection) => Wrap::Clear,
            None if self.clear.contains(&connection) => Wrap::Clear,
            None => Wrap::Void,
        }
    }

    /// Completes a datagram whose first `clear` bytes are authenticated only, with the packet where
    /// [`Wrap::inside`] says.
    ///
    /// # Panics
    /// If the datagram is shorter than that, or `wrap` is of another endpoint.
    #[inline]
    pub fn seal(&mut self, wrap: Wrap, clear: usize, datagram: &mut [u8]) {
        self.seal_as(Content::Packet, wrap, clear, datagram);
    }

    /// The same for what [`wrap_frame`](Self::wrap_frame) said.
    ///
    /// # Panics
    /// As [`seal`](Self::seal).
    #[inline]
    pub fn seal_frame(&mut self, wrap: Wrap, clear: usize, datagram: &mut [u8]) {
        self.seal_as(Content::Frame, wrap, clear, datagram);
    }

    #[inline]
    fn seal_as(&mut self, content: Content, wrap: Wrap, clear: usize, datagram: &mut [u8]) {
        match wrap {
            Wrap::Clear => {}
            Wrap::Void => datagram.fill(0),
            Wrap::Sealed(connection) => {
                let channel = self.channels.get_mut(&connection).expect("it was there for wrap");
                let is_new_key = channel.seal(content, clear, datagram, self.epoch);
                self.counters.sealed += 1;
                if is_new_key {
                    self.log(connection, true);
                }
            }
            Wrap::Exchange { connection, length } => {
                let out = datagram.len() - usize::from(length);
                if let Some(extension) = self.extension(connection) {
                    datagram[out..].copy_from_slice(extension);
                }
            }
        }
    }

    /// Opens a datagram in place. Its first `clear` bytes are only authenticated. Returns what is encrypted, and
    /// what that is; of what is not encrypted and need not be, all that follows the clear bytes.
    ///
    /// # Errors
    /// The datagram is to be dropped; after `UnknownKey` its sender is told (`Endpoint::handle_unopened`).
    #[inline]
    pub fn open<'a>(
        &mut self,
        datagram: &'a mut [u8],
        clear: usize,
    ) -> Result<(&'a mut [u8], Content), OpenError> {
        let Some(&kind) = datagram.get(clear) else {
            self.counters.malformed += 1;
            return Err(OpenError::TooShort { got: 0 });
        };
        let opened = if kind == SealedHeader::PACKET_TYPE {
            return self.open_sealed(datagram, clear);
        } else if self.channels.is_empty() && self.config.mode != Mode::Required {
            Ok(())
        } else {
            self.check_clear(&datagram[clear..])
        };
        opened.map(|()| (&mut datagram[clear..], Content::Packet))
    }

    #[inline]
    fn open_sealed<'a>(
        &mut self,
        datagram: &'a mut [u8],
        clear: usize,
    ) -> Result<(&'a mut [u8], Content), OpenError> {
        let opened = self.try_open(datagram, clear);
        match &opened {
            Ok(_) => self.counters.opened += 1,
            Err(error) => self.count(error),
        }
        opened
    }

    #[inline]
    fn try_open<'a>(
        &mut self,
        datagram: &'a mut [u8],
        clear: usize,
    ) -> Result<(&'a mut [u8], Content), OpenError> {
        let (header, sealed) = SealedHeader::parse(&datagram[clear..])?;
        // What every packet has: type and connection id, which is looked at below.
        let least = SealedHeader::TAG_LEN + if header.content == Content::Packet { 12 } else { 0 };
        if sealed.len() < least {
            return Err(OpenError::TooShort { got: sealed.len() });
        }
        let connection = ConnectionId(header.spi);
        let Some(channel) = self.channels.get_mut(&connection) else {
            return Err(match self.asking.contains_key(&connection) {
                true => OpenError::Early { connection },
                false => OpenError::UnknownKey { connection, iv: header.iv },
            });
        };
        let (inside, is_new_key) = channel.open(&header, clear, datagram)?;
        // Its own connection's packets are all that a peer may send under a connection's keys.
        if header.content == Content::Packet && connection_of(inside) != Some(connection) {
            return Err(OpenError::NotAuthentic { connection });
        }
        channel.accept = None;
        if is_new_key {
            self.log(connection, false);
        }
        Ok((inside, header.content))
    }

    /// Whether a packet in the clear may be taken in: none may that belongs to a connection that is encrypted, but for
    /// those of set-up, which [`Self::admit`] looks at.
    fn check_clear(&mut self, packet: &[u8]) -> Result<(), OpenError> {
        const CLOSE: u8 = SetupKind::Close.packet_type();
        let named = match packet.first() {
            Some(&(DataHeader::PACKET_TYPE | weft_wire::AckHeader::PACKET_TYPE | CLOSE)) => {
                connection_of(packet)
            }
            _ => None,
        };
        let required = self.config.mode == Mode::Required;
        match named.filter(|connection| required || self.channels.contains_key(connection)) {
            Some(connection) => {
                let error = OpenError::InClear { connection };
                self.count(&error);
                Err(error)
            }
            None => Ok(()),
        }
    }

    #[cold]
    fn count(&mut self, error: &OpenError) {
        let counter = match error {
            OpenError::Header(_) | OpenError::TooShort { .. } => &mut self.counters.malformed,
            OpenError::UnknownKey { .. } | OpenError::Early { .. } => {
                &mut self.counters.unknown_key
            }
            OpenError::NotAuthentic { .. } => &mut self.counters.not_authentic,
            OpenError::Replayed { .. } => &mut self.counters.replayed,
            OpenError::InClear { .. } => &mut self.counters.in_clear,
        };
        *counter += 1;
    }

    /// Has every connection go on to its next key with its next packet, when that is due.
    #[inline]
    pub fn handle_timeout(&mut self, now: Instant) {
        self.budget.fill(now);
        if self.change_keys_at <= now {
            self.epoch = self.epoch.wrapping_add(1);
            self.change_keys_at = now + self.config.key_lifetime;
        }
    }

    /// Forgets the keys of a connection that is no more.
    pub fn forget(&mut self, forgotten: Forgotten) {
        let Forgotten { connection, to, remote_cid } = forgotten;
        self.asking.remove(&connection);
        self.answering.remove(&(to, remote_cid));
        self.channels.remove(&connection);
        self.clear.remove(&connection);
    }

    /// Accepts these identities from now on. Returns the connections whose peers are not among them; the owner closes
    /// them.
    pub fn set_peers(&mut self, peers: Option<BTreeSet<PublicKey>>) -> Vec<ConnectionId> {
        self.config.peers = peers;
        let Some(accepted) = &self.config.peers else { return Vec::new() };
        let refused = self.channels.iter().filter(|(_, channel)| !accepted.contains(&channel.peer));
        refused.map(|(&connection, _)| connection).collect()
    }

    /// Returns `true` if the connection is encrypted.
    pub fn is_sealed(&self, connection: ConnectionId) -> bool {
        self.channels.contains_key(&connection)
    }

    /// Returns the identity of a connection's peer; `None` where the connection is not encrypted, or the peer has not
    /// proved yet who it is.
    pub fn peer(&self, connection: ConnectionId) -> Option<PublicKey> {
        let channel = self.channels.get(&connection).filter(|channel| channel.accept.is_none());
        channel.map(|channel| channel.peer)
    }

    /// Returns how many connections are encrypted.
    pub fn connections(&self) -> usize {
        self.channels.len()
    }

    /// Returns what was counted.
    pub const fn counters(&self) -> SealCounters {
        self.counters
    }

    /// Returns how it encrypts.
    pub const fn config(&self) -> &SealConfig {
        &self.config
    }

    /// Returns the next line for a file of keys, if [`SealConfig::key_log`] asks for them: SPI, cipher, number and
    /// bytes of a key, the numbers in decimal and the rest in hexadecimal digits. Whoever has the file can read what
    /// was sent.
    pub fn poll_key_log(&mut self) -> Option<String> {
        self.key_log.0.pop_front()
    }

    /// Notes a key that is in use from now on.
    fn log(&mut self, connection: ConnectionId, sending: bool) {
        if self.config.key_log
            && let Some(channel) = self.channels.get(&connection)
        {
            let (spi, cipher, number, key, len) = channel.log(connection, sending);
            let line = format!("{spi:08x} {} {number} {}", cipher.number(), Hex(&key[..len]));
            if self.key_log.0.len() >= MAX_KEY_LINES {
                self.key_log.0.pop_front();
            }
            self.key_log.0.push_back(line);
        }
    }
}

/// The connection id in a packet's third word.
#[inline]
fn connection_of(packet: &[u8]) -> Option<ConnectionId> {
    let word = packet.get(8..12)?.first_chunk()?;
    Some(ConnectionId(u32::from_be_bytes(*word)))
}

/// The ids of this end's connections are drawn from a keyed permutation: nobody chooses which share a bucket.
#[derive(Clone, Copy, Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    #[inline]
    fn write_u32(&mut self, id: u32) {
        // The golden ratio's fraction (Knuth, The Art of Computer Programming 3, section 6.4).
        self.0 = (self.0.rotate_left(5) ^ u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
