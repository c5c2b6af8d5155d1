//! The connections of one endpoint with their exchanges and keys. It wraps packets that leave and
//! opens packets that arrive; `admission.rs` handles set-up packets.

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
use weft_transport::{ConnectionId, EndedConnection};
use weft_units::Instant;
use weft_wire::{DataHeader, Packet, SealedContent, SealedHeader, SetupHeader, SetupKind};

use crate::budget::Budget;
use crate::channel::Channel;
use crate::entropy::Entropy;
use crate::exchange::{Initiator, Responder};
use crate::identity::Hex;
use crate::{Mode, OpenError, PrivateKey, PublicKey, SealConfig, SealCounters};

mod admission;
#[cfg(test)]
mod tests;

/// Maximum number of key log lines kept; older ones are discarded.
const MAX_KEY_LINES: usize = 4_096;

/// Lines of the key log. `Debug` does not show them.
#[derive(Default)]
struct KeyLines(VecDeque<String>);

impl fmt::Debug for KeyLines {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "KeyLines({}, ..)", self.0.len())
    }
}

/// The form in which a packet leaves; see [`Seals::wrap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrap {
    /// The packet leaves unchanged.
    Clear,
    /// The packet may not leave in the clear, and there are no keys for it. Zeros, which are no packet, leave in its
    /// place.
    NotEncrypted,
    /// The packet leaves encrypted under the keys of this connection.
    Sealed(ConnectionId),
    /// The packet leaves in the clear, followed by `length` bytes of a key exchange.
    Exchange {
        /// The connection that is set up.
        connection: ConnectionId,
        /// Length of the exchange, bytes.
        length: u16,
    },
}

impl Wrap {
    /// Returns the number of bytes that it adds to a packet.
    #[inline]
    pub const fn len(self) -> usize {
        match self {
            Self::Clear | Self::NotEncrypted => 0,
            Self::Sealed(_) => SealedHeader::OVERHEAD,
            Self::Exchange { length, .. } => length as usize,
        }
    }

    /// Returns `true` if it adds nothing.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the part of a datagram that holds the packet. The first `clear` bytes are before it.
    #[inline]
    pub fn inside_mut(self, clear: usize, datagram: &mut [u8]) -> &mut [u8] {
        let inside = self.inside(clear, datagram.len());
        &mut datagram[inside]
    }

    /// Returns the range of the packet in a datagram of `len` bytes whose first `clear` bytes are
    /// before it.
    #[inline]
    pub const fn inside(self, clear: usize, len: usize) -> Range<usize> {
        match self {
            Self::Clear | Self::NotEncrypted => clear..len,
            Self::Sealed(_) => clear + SealedHeader::LEN..len - SealedHeader::TAG_LEN,
            Self::Exchange { length, .. } => clear..len - length as usize,
        }
    }
}

/// The encryption of one endpoint's connections.
///
/// For each packet sent: [`wrap`](Self::wrap), room for [`Wrap::len`] more bytes, the packet in
/// [`Wrap::inside`], [`seal`](Self::seal). For each received: [`open`](Self::open); a set-up packet
/// also passes [`admit`](Self::admit), whose result goes to `Endpoint::handle_admission`.
#[derive(Debug)]
pub struct Seals {
    config: SealConfig,
    identity: PrivateKey,
    random: Entropy,
    /// The keys of encrypted connections, boxed because a table has unused places and a channel is large.
    channels: Table<Box<Channel>>,
    /// Connections that are known not to be encrypted. Packets of a connection in neither table do
    /// not leave.
    clear: HashSet<ConnectionId, BuildHasherDefault<IdHasher>>,
    /// Requests sent whose accept has not arrived.
    initiators: Table<Initiator>,
    /// Requests received whose accept has not left, by their sender: address, receive port,
    /// connection id. `None` for a peer that does not support encryption.
    responders: BTreeMap<(SocketAddr, u32), Option<Box<Responder>>>,
    budget: Budget,
    /// Number of expired key lifetimes.
    epoch: u32,
    change_keys_at: Instant,
    key_log: KeyLines,
    counters: SealCounters,
}

type Table<T> = HashMap<ConnectionId, T, BuildHasherDefault<IdHasher>>;

impl Seals {
    /// Number of bytes that encryption adds to a packet. The packets of an endpoint that may encrypt must be smaller by
    /// as many bytes.
    pub const OVERHEAD: u16 = 28;

    /// Returns the encryption of an endpoint without connections. `entropy` comes from the
    /// operating system, fresh for each endpoint; in a simulation from the seed.
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
            initiators: Table::default(),
            responders: BTreeMap::new(),
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

    /// Returns the identity that is sent to peers.
    pub fn identity(&self) -> PublicKey {
        self.identity.public()
    }

    /// Returns the form in which packet `packet` of `connection` to `to` leaves. The first request
    /// and the accept of a connection compute keys here, which takes some hundred microseconds.
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
            // A close before the peer has answered, which carries no information.
            Packet::Setup(_) if self.initiators.contains_key(&connection) => Wrap::Clear,
            _ => Wrap::NotEncrypted,
        }
    }

    /// Returns the form of a tenant's frame that belongs to no connection: under the keys of this
    /// one, if it has any.
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
            SetupKind::Request => self.request_extension(connection, header),
            _ => self.accept_extension(*to, connection, header),
        };
        let length = |bytes: &[u8]| u16::try_from(bytes.len()).expect("some hundred bytes");
        match extension.map(length) {
            Some(length) => Wrap::Exchange { connection, length },
            // A retransmission after the peer has proved the keys; or a connection that is not
            // encrypted.
            None if self.channels.contains_key(&connection) => Wrap::Clear,
            None if self.clear.contains(&connection) => Wrap::Clear,
            None => Wrap::NotEncrypted,
        }
    }

    /// Seals a datagram whose first `clear` bytes are only authenticated, with the packet in [`Wrap::inside`].
    ///
    /// # Panics
    /// Panics if the datagram is too short for `clear` and [`Wrap::len`] bytes, if `wrap` is of another endpoint, or if
    /// its connection was [removed](Self::remove) since.
    #[inline]
    pub fn seal(&mut self, wrap: Wrap, clear: usize, datagram: &mut [u8]) {
        self.seal_as(SealedContent::Packet, wrap, clear, datagram);
    }

    /// Seals a datagram with a tenant's frame, as [`seal`](Self::seal) does with a packet; `wrap` is the result of
    /// [`wrap_frame`](Self::wrap_frame).
    ///
    /// # Panics
    /// Panics in the cases in which [`seal`](Self::seal) does.
    #[inline]
    pub fn seal_frame(&mut self, wrap: Wrap, clear: usize, datagram: &mut [u8]) {
        self.seal_as(SealedContent::Frame, wrap, clear, datagram);
    }

    #[inline]
    fn seal_as(&mut self, content: SealedContent, wrap: Wrap, clear: usize, datagram: &mut [u8]) {
        match wrap {
            Wrap::Clear => {}
            Wrap::NotEncrypted => datagram.fill(0),
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

    /// Opens a datagram in place. Its first `clear` bytes are only authenticated. Returns the
    /// plaintext and its kind; of a datagram that is not encrypted and need not be, all bytes after
    /// the clear ones.
    ///
    /// # Errors
    /// [`OpenError`]: the owner drops the datagram, and after [`OpenError::UnknownKey`] notifies its sender
    /// (`Endpoint::handle_unknown_encrypted`).
    #[inline]
    pub fn open<'a>(
        &mut self,
        datagram: &'a mut [u8],
        clear: usize,
    ) -> Result<(&'a mut [u8], SealedContent), OpenError> {
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
        opened.map(|()| (&mut datagram[clear..], SealedContent::Packet))
    }

    #[inline]
    fn open_sealed<'a>(
        &mut self,
        datagram: &'a mut [u8],
        clear: usize,
    ) -> Result<(&'a mut [u8], SealedContent), OpenError> {
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
    ) -> Result<(&'a mut [u8], SealedContent), OpenError> {
        let (header, sealed) = SealedHeader::parse(&datagram[clear..])?;
        // Every packet has at least a type and a connection id, which is checked below.
        let min_len =
            SealedHeader::TAG_LEN + if header.content == SealedContent::Packet { 12 } else { 0 };
        if sealed.len() < min_len {
            return Err(OpenError::TooShort { got: sealed.len() });
        }
        let connection = ConnectionId(header.spi);
        let Some(channel) = self.channels.get_mut(&connection) else {
            return Err(match self.initiators.contains_key(&connection) {
                true => OpenError::Early { connection },
                false => OpenError::UnknownKey { connection, iv: header.iv },
            });
        };
        let (inside, is_new_key) = channel.open(&header, clear, datagram)?;
        // Under a connection's keys a peer may send only packets of that connection.
        if header.content == SealedContent::Packet && connection_of(inside) != Some(connection) {
            return Err(OpenError::NotAuthentic { connection });
        }
        channel.accept = None;
        if is_new_key {
            self.log(connection, false);
        }
        Ok((inside, header.content))
    }

    /// Checks that a packet in the clear may be accepted. Packets of an encrypted connection may
    /// not, except those of set-up, which [`Self::admit`] checks.
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

    /// Advances the time: refills the budget of key exchanges, and, if the key lifetime has expired, makes every
    /// connection change to its next key with its next packet.
    #[inline]
    pub fn handle_timeout(&mut self, now: Instant) {
        self.budget.fill(now);
        if self.change_keys_at <= now {
            self.epoch = self.epoch.wrapping_add(1);
            self.change_keys_at = now + self.config.key_lifetime;
        }
    }

    /// Removes the keys of a closed connection.
    pub fn remove(&mut self, ended: EndedConnection) {
        let EndedConnection { connection, to, remote_cid } = ended;
        self.initiators.remove(&connection);
        self.responders.remove(&(to, remote_cid));
        self.channels.remove(&connection);
        self.clear.remove(&connection);
    }

    /// Replaces the accepted identities. Returns the connections whose peers are not among them;
    /// the owner closes them.
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

    /// Returns the identity of a connection's peer; `None` if the connection is not encrypted, or
    /// the peer has not proved its identity yet.
    pub fn peer(&self, connection: ConnectionId) -> Option<PublicKey> {
        let channel = self.channels.get(&connection).filter(|channel| channel.accept.is_none());
        channel.map(|channel| channel.peer)
    }

    /// Returns the number of encrypted connections.
    pub fn connections(&self) -> usize {
        self.channels.len()
    }

    /// Returns the counters.
    pub const fn counters(&self) -> SealCounters {
        self.counters
    }

    /// Returns the configuration.
    pub const fn config(&self) -> &SealConfig {
        &self.config
    }

    /// Returns the next line of the key log, if [`SealConfig::key_log`] is set: SPI, cipher, number
    /// and bytes of a key, the numbers in decimal and the rest in hexadecimal digits. A reader of
    /// the log can decrypt the packets.
    pub fn poll_key_log(&mut self) -> Option<String> {
        self.key_log.0.pop_front()
    }

    /// Logs a key that is used from now on.
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

/// Returns the connection id in a packet's third word.
#[inline]
fn connection_of(packet: &[u8]) -> Option<ConnectionId> {
    let word = packet.get(8..12)?.first_chunk()?;
    Some(ConnectionId(u32::from_be_bytes(*word)))
}

/// A hasher of this end's connection ids. They come from a keyed permutation, so nobody can choose ids that share a
/// bucket.
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
