//! The keys of one connection, in both directions.

use alloc::boxed::Box;
use alloc::vec::Vec;

use weft_transport::ConnectionId;
use weft_wire::{Cipher, SealedContent, SealedHeader, U4};

use crate::exchange::Agreed;
use crate::key::Key;
use crate::window::{WIDTH, Window};
use crate::{OpenError, PublicKey};

/// The protocol's version.
const VERSION: u32 = 1;

/// Maximum number of packets under one key; then the next key follows. With packets of 2^7 blocks, distinguishing
/// 2^32 of them from random bytes has an advantage of 2^-51 (the bound of counter mode, blocks
/// squared over 2^129).
const MAX_PACKETS_PER_KEY: u64 = 1 << 32;

/// Maximum number of keys skipped because no packet under them arrived. A forged packet costs as
/// many derivations, once.
const MAX_AHEAD: u8 = 8;

/// One connection's keys.
#[derive(Debug)]
pub(crate) struct Channel {
    /// The peer's connection id.
    pub(crate) remote: u32,
    /// The peer's identity.
    pub(crate) peer: PublicKey,
    /// The accept's extension, until the peer proves that it has received it.
    pub(crate) accept: Option<Box<[u8]>>,
    sender: Sender,
    receiver: Receiver,
}

#[derive(Debug)]
struct Sender {
    cipher: Cipher,
    key: Key,
    /// The next packet's number. It continues across keys.
    iv: u64,
    /// The number with which the key was first used.
    key_since: u64,
    /// The endpoint's epoch when the key was first used.
    epoch: u32,
}

#[derive(Debug)]
struct Receiver {
    cipher: Cipher,
    key: Key,
    /// The previous key, for late packets.
    previous: Option<Key>,
    /// The following keys, derived as far as a received packet claims to use them.
    ahead: Vec<Key>,
    window: Window,
}

impl Channel {
    pub(crate) fn new(
        remote: u32,
        agreed: Agreed,
        cipher: Cipher,
        epoch: u32,
        accept: Option<Box<[u8]>>,
    ) -> Self {
        let Agreed { sending, receiving, cipher: theirs, peer } = agreed;
        let key = Key::new(0, sending, cipher);
        let sender = Sender { cipher, key, iv: 0, key_since: 0, epoch };
        let (key, window) = (Key::new(0, receiving, theirs), Window::default());
        let receiver = Receiver { cipher: theirs, key, previous: None, ahead: Vec::new(), window };
        Self { remote, peer, accept, sender, receiver }
    }

    /// Encrypts a packet in place. Before the plaintext are `clear` bytes that are only authenticated, and room for the
    /// header; after it is room for the tag. Returns `true` if the key was not used before.
    #[inline]
    pub(crate) fn seal(
        &mut self,
        content: SealedContent,
        clear: usize,
        packet: &mut [u8],
        epoch: u32,
    ) -> bool {
        let sender = &mut self.sender;
        let is_new = sender.epoch != epoch || sender.iv - sender.key_since >= MAX_PACKETS_PER_KEY;
        if is_new {
            sender.rotate(epoch);
        }
        let iv = sender.iv;
        sender.iv += 1;
        let header = SealedHeader {
            version: U4::truncate(VERSION),
            cipher: sender.cipher,
            key: sender.key.number,
            content,
            iv: low_half(iv),
            spi: self.remote,
        };
        let (headers, rest) = packet.split_at_mut(clear + SealedHeader::LEN);
        header.emit(&mut headers[clear..]);
        let (text, tag) = rest.split_at_mut(rest.len() - SealedHeader::TAG_LEN);
        tag.copy_from_slice(&sender.key.seal((self.remote, iv), headers, text));
        is_new
    }

    /// Decrypts a packet in place. Returns the plaintext, and `true` if no packet under its key was opened before.
    ///
    /// # Errors
    /// [`OpenError::Replayed`] or [`OpenError::NotAuthentic`].
    #[inline]
    pub(crate) fn open<'a>(
        &mut self,
        header: &SealedHeader,
        clear: usize,
        packet: &'a mut [u8],
    ) -> Result<(&'a mut [u8], bool), OpenError> {
        let receiver = &mut self.receiver;
        let spi = ConnectionId(header.spi);
        let not_authentic = OpenError::NotAuthentic { connection: spi };
        if header.cipher != receiver.cipher {
            return Err(not_authentic);
        }
        let iv = receiver.window.complete(header.iv);
        if receiver.window.has(iv) {
            return Err(OpenError::Replayed { connection: spi, iv });
        }
        let (headers, sealed) = packet.split_at_mut(clear + SealedHeader::LEN);
        let ahead = header.key.wrapping_sub(receiver.key.number);
        let key = match ahead {
            0 => &receiver.key,
            u8::MAX => receiver.previous.as_ref().ok_or(not_authentic)?,
            1..=MAX_AHEAD => receiver.ahead(ahead),
            _ => return Err(not_authentic),
        };
        let text = key.open((header.spi, iv), headers, sealed).ok_or(not_authentic)?;
        receiver.window.add(iv);
        let is_new = (1..=MAX_AHEAD).contains(&ahead);
        if is_new {
            receiver.rotate(ahead);
        }
        Ok((text, is_new))
    }

    /// Returns `true` if the number of one of the last [`WIDTH`] packets sent has the low half `iv`.
    pub(crate) const fn sent_lately(&self, iv: u32) -> bool {
        let behind = low_half(self.sender.iv).wrapping_sub(iv) as u64;
        0 < behind && behind <= WIDTH && behind <= self.sender.iv
    }

    /// Returns the fields of a key log line: SPI, cipher, number and bytes of the key of one direction, and the number
    /// of those bytes.
    pub(crate) fn log(
        &self,
        own: ConnectionId,
        sending: bool,
    ) -> (u32, Cipher, u8, [u8; 32], usize) {
        let (spi, cipher, key) = match sending {
            true => (self.remote, self.sender.cipher, &self.sender.key),
            false => (own.0, self.receiver.cipher, &self.receiver.key),
        };
        let (bytes, len) = key.bytes(cipher);
        (spi, cipher, key.number, bytes, len)
    }

    #[cfg(test)]
    pub(crate) const fn skip_to(&mut self, iv: u64) {
        self.sender.iv = iv;
    }
}

impl Sender {
    #[cold]
    fn rotate(&mut self, epoch: u32) {
        self.key = self.key.next(self.cipher);
        (self.epoch, self.key_since) = (epoch, self.iv);
    }
}

impl Receiver {
    /// Returns the key `count` after this one; `count` is at least 1.
    #[cold]
    fn ahead(&mut self, count: u8) -> &Key {
        let count = usize::from(count);
        while self.ahead.len() < count {
            let next = self.ahead.last().unwrap_or(&self.key).next(self.cipher);
            self.ahead.push(next);
        }
        &self.ahead[count - 1]
    }

    /// Advances by `count` keys, as the peer did.
    #[cold]
    fn rotate(&mut self, count: u8) {
        for next in self.ahead.drain(..usize::from(count)) {
            self.previous = Some(core::mem::replace(&mut self.key, next));
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the transmitted half")]
const fn low_half(iv: u64) -> u32 {
    iv as u32
}
