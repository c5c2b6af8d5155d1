//! Encryption between two hosts, packet by packet, without a session to set up: what follows the VXLAN
//! header is encrypted, and that header authenticated with it.
//!
//! ```text
//! VXLAN (next: sealed) | seal header: cipher, SPI, IV | encrypted | tag
//!  8 bytes               16 bytes                       as before   16 bytes
//! ```
//!
//! As in Google's PSP, each packet says by its SPI which key it is under and can be opened alone, in
//! any order, on any path. The SPI is the number of the secret that both hosts were given (8 bits) and
//! of the sender (24 bits, such as its thread). A key is HKDF-SHA-256 (RFC 5869) of that secret, over
//! both hosts' addresses in the packet's direction, the cipher and the SPI. PSP uses a KDF of AES-CMAC,
//! which suits NICs that derive a key for every packet; here one derivation lasts as long as the key,
//! and HKDF needs no second library.
//!
//! A nonce is SPI and IV (PSP; NIST SP 800-38D, section 8.2.1), so under one key no IV may come twice.
//! IVs count up from a number that the owner takes from its clock, nanoseconds since 1970: a sender
//! that has restarted goes on above whatever it has used, unless its clock was set back by more than
//! it was away. A sender never sends [`MOST_PACKETS`] under one key.
//!
//! What this does not hide: the network (VNI), lengths, and who speaks with whom. A receiver that has
//! restarted knows no longer what it has received, so that what somebody has recorded of the last 4,096
//! packets before may come once more; the transport's connections, whose ids are new then, do not take
//! it.

use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use ring::aead::{Aad, LessSafeKey};
use thiserror::Error;
use weft_units::{Duration, Instant};
use weft_wire::{Cipher, ParseError, SealHeader, U24, VxlanHeader, VxlanNext};

mod key;
mod window;

pub use key::{ParseSecretError, SealSecret};
use key::{derive, nonce, number_of, spi};
use window::Window;

/// How two hosts encrypt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealConfig {
    /// The cipher to send with. Both are received.
    pub cipher: Cipher,
    /// This host.
    pub local: IpAddr,
    /// The other.
    pub remote: IpAddr,
    /// Which of this host's senders this is, such as its thread.
    pub sender: U24,
    /// How long after a rotation the new secret is sent with, unless the other host does so before;
    /// the old one is received for twice as long. Both hosts are given the new secret within this time
    /// of each other.
    pub overlap: Duration,
}

/// Packets under one key at most: 2^44, twenty days at ten million a second. With packets of 2^7
/// blocks, telling them from noise has then a chance of 2^-27 (the bound of counter mode, blocks
/// squared over 2^129).
pub const MOST_PACKETS: u64 = 1 << 44;

/// Senders of one host at most: each has a window of half a KiB.
const MOST_SENDERS: usize = 256;

/// Why a packet is not encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SealError {
    /// The key has been used for as many packets as it may.
    #[error("the key of secret {secret} has been used for 2^44 packets; rotate the secret")]
    KeyUsedUp {
        /// The secret's number.
        secret: u8,
    },
}

/// Why a packet is not opened. It is dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// The headers are none.
    #[error(transparent)]
    Header(#[from] ParseError),
    /// VXLAN that is not encrypted.
    #[error("the packet is not encrypted")]
    NotSealed,
    /// Shorter than what authenticates it.
    #[error("{got} bytes after the headers; what authenticates them takes 16")]
    TooShort {
        /// Bytes there.
        got: usize,
    },
    /// Under a secret that is not known, or no longer.
    #[error("SPI {spi:#010x}: secret {} is not one of those in use", spi >> 24)]
    UnknownSpi {
        /// The number in the packet.
        spi: u32,
    },
    /// Changed on the way, made up, or under another secret of the same number.
    #[error("SPI {spi:#010x}: the packet is not authentic")]
    NotAuthentic {
        /// The number in the packet.
        spi: u32,
    },
    /// Received before, or so old that this is not known.
    #[error("SPI {spi:#010x}: packet {iv} was received before, or is older than 4,096 packets")]
    Replayed {
        /// The number in the packet.
        spi: u32,
        /// The packet's number.
        iv: u64,
    },
    /// From more senders of one host than a host has.
    #[error("SPI {spi:#010x}: more than {MOST_SENDERS} senders")]
    TooManySenders {
        /// The number in the packet.
        spi: u32,
    },
}

impl OpenError {
    /// A short name for counters: one word a variant, whatever its numbers.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Header(error) => error.reason(),
            Self::NotSealed => "not_sealed",
            Self::TooShort { .. } => "truncated",
            Self::UnknownSpi { .. } => "unknown_spi",
            Self::NotAuthentic { .. } => "not_authentic",
            Self::Replayed { .. } => "replayed",
            Self::TooManySenders { .. } => "too_many_senders",
        }
    }
}

/// What was opened, and what was not. All of them only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SealCounters {
    /// Packets encrypted.
    pub sealed: u64,
    /// Packets opened.
    pub opened: u64,
    /// Packets whose headers are none, or that are not encrypted.
    pub malformed: u64,
    /// Packets under secrets that are not known.
    pub unknown_spi: u64,
    /// Packets that are not authentic.
    pub not_authentic: u64,
    /// Packets received before.
    pub replayed: u64,
}

/// Encryption between this host and another.
#[derive(Debug)]
pub struct Seal {
    config: SealConfig,
    /// The secret that was given last, and before it the one it follows.
    secrets: Vec<Secret>,
    /// What is sent with.
    sending: Sending,
    /// When the new secret is sent with at the latest.
    switch_at: Option<Instant>,
    /// The other host's senders.
    receiving: Vec<Receiving>,
    counters: SealCounters,
}

#[derive(Debug)]
struct Secret {
    number: u8,
    secret: SealSecret,
    /// When it ends.
    until: Option<Instant>,
}

struct Sending {
    secret: u8,
    key: LessSafeKey,
    next_iv: u64,
    last_iv: u64,
}

struct Receiving {
    spi: u32,
    cipher: Cipher,
    key: LessSafeKey,
    window: Window,
}

impl Seal {
    /// Bytes before what is encrypted: VXLAN's header and the seal's.
    pub const HEADERS_LEN: usize = VxlanHeader::LEN + SealHeader::LEN;

    /// Bytes that encryption adds to a packet in VXLAN.
    pub const OVERHEAD: usize = SealHeader::LEN + SealHeader::TAG_LEN;

    /// Encryption under the secret with this number. `first_iv` is above all that this sender has ever
    /// used under it: nanoseconds since 1970.
    pub fn new(config: SealConfig, number: u8, secret: SealSecret, first_iv: u64) -> Self {
        let sending = Sending::new(&config, number, &secret, first_iv);
        let secrets = alloc::vec![Secret { number, secret, until: None }];
        Self {
            config,
            secrets,
            sending,
            switch_at: None,
            receiving: Vec::new(),
            counters: SealCounters::default(),
        }
    }

    /// Another secret follows the last one. It is received from now on; it is sent with when the other
    /// host does, or after [`overlap`](SealConfig::overlap). The old one is received for twice that
    /// long; one before it ends now. A secret with the number of the last one is the last one.
    pub fn rotate(&mut self, number: u8, secret: SealSecret, now: Instant) {
        if self.secrets.last().is_some_and(|last| last.number == number) {
            return;
        }
        if self.switch_at.is_some() {
            // The secret that is sent with so far is about to end.
            self.switch(self.sending.next_iv);
        }
        let last = self.secrets.pop().expect("there is always one");
        self.secrets.clear();
        self.receiving.retain(|known| number_of(known.spi) == last.number);
        let until = Some(now + self.config.overlap * 2);
        self.secrets.push(Secret { until, ..last });
        self.secrets.push(Secret { number, secret, until: None });
        self.switch_at = Some(now + self.config.overlap);
    }

    /// When [`handle_timeout`](Self::handle_timeout) must be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let ends = self.secrets.iter().filter_map(|secret| secret.until);
        self.switch_at.into_iter().chain(ends).min()
    }

    /// Does what is due. `first_iv` is as in [`new`](Self::new).
    pub fn handle_timeout(&mut self, now: Instant, first_iv: u64) {
        if self.switch_at.is_some_and(|due| due <= now) {
            self.switch(first_iv);
        }
        self.secrets.retain(|secret| secret.until.is_none_or(|until| now < until));
        self.forget_ended();
    }

    /// Encrypts a packet in place: `buffer` has [`HEADERS_LEN`](Self::HEADERS_LEN) bytes that are
    /// written, `len` bytes that are encrypted, and room for the tag. How much of it is to be sent.
    ///
    /// # Errors
    /// The key is used up: nothing can be sent before the secret is rotated.
    ///
    /// # Panics
    /// If the buffer is shorter, or if `vxlan` says that the packet is encrypted already.
    pub fn seal(
        &mut self,
        vxlan: VxlanHeader,
        buffer: &mut [u8],
        len: usize,
    ) -> Result<usize, SealError> {
        let Sending { secret, key, next_iv, last_iv } = &mut self.sending;
        if next_iv == last_iv {
            return Err(SealError::KeyUsedUp { secret: *secret });
        }
        let iv = *next_iv;
        *next_iv += 1;
        let spi = spi(*secret, self.config.sender);
        let header = SealHeader { next: vxlan.next, cipher: self.config.cipher, spi, iv };
        let total = Self::HEADERS_LEN + len + SealHeader::TAG_LEN;
        let (headers, rest) = buffer[..total].split_at_mut(Self::HEADERS_LEN);
        VxlanHeader { next: VxlanNext::Sealed, ..vxlan }.emit(headers);
        header.emit(&mut headers[VxlanHeader::LEN..]);
        let (text, tag) = rest.split_at_mut(len);
        let sealed = key.seal_in_place_separate_tag(nonce(spi, iv), Aad::from(&*headers), text);
        tag.copy_from_slice(sealed.expect("a packet is shorter than 64 GiB").as_ref());
        self.counters.sealed += 1;
        Ok(total)
    }

    /// Opens a packet in place, from its VXLAN header on: what VXLAN's header would say without
    /// encryption, and what follows it.
    ///
    /// # Errors
    /// The packet is to be dropped; it is counted here. Its bytes are then of no use.
    pub fn open<'a>(
        &mut self,
        packet: &'a mut [u8],
        now: Instant,
    ) -> Result<(VxlanHeader, &'a mut [u8]), OpenError> {
        let opened = self.try_open(packet, now);
        let counter = match &opened {
            Ok(_) => &mut self.counters.opened,
            Err(OpenError::UnknownSpi { .. } | OpenError::TooManySenders { .. }) => {
                &mut self.counters.unknown_spi
            }
            Err(OpenError::NotAuthentic { .. }) => &mut self.counters.not_authentic,
            Err(OpenError::Replayed { .. }) => &mut self.counters.replayed,
            Err(_) => &mut self.counters.malformed,
        };
        *counter += 1;
        opened
    }

    /// What was opened, and what was not.
    pub const fn counters(&self) -> SealCounters {
        self.counters
    }

    /// The number of the secret that is sent with.
    pub const fn sending_with(&self) -> u8 {
        self.sending.secret
    }

    fn try_open<'a>(
        &mut self,
        packet: &'a mut [u8],
        now: Instant,
    ) -> Result<(VxlanHeader, &'a mut [u8]), OpenError> {
        let (vxlan, rest) = VxlanHeader::parse(packet)?;
        if vxlan.next != VxlanNext::Sealed {
            return Err(OpenError::NotSealed);
        }
        let (header, sealed) = SealHeader::parse(rest)?;
        let SealHeader { next, cipher, spi, iv } = header;
        if sealed.len() < SealHeader::TAG_LEN {
            return Err(OpenError::TooShort { got: sealed.len() });
        }
        let unknown = OpenError::UnknownSpi { spi };
        let secret = self.secrets.iter().find(|secret| secret.number == number_of(spi));
        let secret = secret.filter(|secret| secret.until.is_none_or(|until| now < until));
        let secret = secret.ok_or(unknown)?;

        let known =
            self.receiving.iter().position(|known| (known.spi, known.cipher) == (spi, cipher));
        let mut new = None;
        let receiving = match known {
            Some(index) => &mut self.receiving[index],
            None if self.receiving.len() >= MOST_SENDERS => {
                return Err(OpenError::TooManySenders { spi });
            }
            None => {
                let ends = (self.config.remote, self.config.local);
                let key = derive(&secret.secret, cipher, ends, spi);
                new.insert(Receiving { spi, cipher, key, window: Window::default() })
            }
        };
        if receiving.window.has(iv) {
            return Err(OpenError::Replayed { spi, iv });
        }
        let (headers, sealed) = packet.split_at_mut(Self::HEADERS_LEN);
        let text = receiving.key.open_in_place(nonce(spi, iv), Aad::from(&*headers), sealed);
        let Ok(text) = text else { return Err(OpenError::NotAuthentic { spi }) };
        receiving.window.add(iv);
        // Only who has the secret becomes a sender.
        self.receiving.extend(new);
        self.heard(number_of(spi));
        Ok((VxlanHeader { next, ..vxlan }, text))
    }

    /// The other host has sent under a secret: when it is the new one, it can be sent with.
    fn heard(&mut self, number: u8) {
        let newest = self.secrets.last().is_some_and(|last| last.number == number);
        if newest && self.switch_at.is_some() {
            // IVs go on above those of the old key, which came from the clock.
            self.switch(self.sending.next_iv);
        }
    }

    fn switch(&mut self, first_iv: u64) {
        let last = self.secrets.last().expect("there is always one");
        self.sending = Sending::new(&self.config, last.number, &last.secret, first_iv);
        self.switch_at = None;
    }

    /// Forgets the senders under secrets that have ended.
    fn forget_ended(&mut self) {
        let Self { secrets, receiving, .. } = self;
        receiving
            .retain(|known| secrets.iter().any(|secret| secret.number == number_of(known.spi)));
    }
}

impl Sending {
    fn new(config: &SealConfig, number: u8, secret: &SealSecret, first_iv: u64) -> Self {
        let spi = spi(number, config.sender);
        let key = derive(secret, config.cipher, (config.local, config.remote), spi);
        let last_iv = first_iv.saturating_add(MOST_PACKETS);
        Self { secret: number, key, next_iv: first_iv, last_iv }
    }
}

impl fmt::Debug for Sending {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Sending").field("secret", &self.secret).finish_non_exhaustive()
    }
}

impl fmt::Debug for Receiving {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Receiving").field("spi", &self.spi).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod proofs;
#[cfg(test)]
mod tests;
