//! The key exchange: `Noise_IXpsk0_25519_ChaChaPoly_SHA256` (Noise protocol framework, revision
//! 34). Both ends generate a key for this exchange and send each other their identities; the
//! pre-shared key, 32 zeros if there is none, goes into the first message (as in WireGuard).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::{Builder, HandshakeState};
use weft_wire::{Cipher, ExchangeHeader, SetupHeader, SetupParameters};

use crate::entropy::Entropy;
use crate::key::Secret;
use crate::{PresharedKey, PrivateKey, PublicKey};

/// Bytes of a set-up header and its terms.
const SETUP_LEN: usize = SetupHeader::LEN + SetupParameters::LEN;

/// Bytes of a Noise message of this pattern without its payload: an ephemeral key, an
/// identity with its tag, and the payload's tag.
const MESSAGE_LEN: usize = 32 + (32 + 16) + 16;

/// The inputs of an exchange on either side.
#[derive(Clone, Copy)]
pub(crate) struct Own<'a> {
    pub(crate) identity: &'a PrivateKey,
    pub(crate) preshared_key: Option<&'a PresharedKey>,
    pub(crate) cipher: Cipher,
}

/// The result of an exchange.
pub(crate) struct Agreed {
    /// The secret of the sending direction.
    pub(crate) sending: Secret,
    /// The secret of the receiving direction.
    pub(crate) receiving: Secret,
    /// The cipher of the peer's packets.
    pub(crate) cipher: Cipher,
    /// The peer's identity.
    pub(crate) peer: PublicKey,
}

/// The error of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed;

/// The initiator of a connection, until the accept arrives.
pub(crate) struct Initiator {
    noise: HandshakeState,
    /// The request's extension: header and first message.
    pub(crate) extension: Box<[u8]>,
    /// `true` if the peer is known to encrypt, so that this end never sends to it in the clear.
    pub(crate) requires_encryption: bool,
    /// The second message, once read, and its payload: the accept around it may have been altered,
    /// and the genuine one may still arrive.
    read: Option<(Box<[u8]>, [u8; 1 + SETUP_LEN])>,
}

/// The responder of a connection, until it accepts.
pub(crate) struct Responder {
    noise: HandshakeState,
    cipher: Cipher,
}

impl Initiator {
    /// Starts the exchange of a request.
    pub(crate) fn new(
        own: Own<'_>,
        random: &mut Entropy,
        request: &SetupHeader,
        requires_encryption: bool,
    ) -> Self {
        let mut noise = begin(own, random.draw(), request, |builder| builder.build_initiator());
        let extension = write(&mut noise, &[own.cipher.number()]);
        Self { noise, extension, requires_encryption, read: None }
    }

    /// Reads the accept's extension and returns the result of the exchange.
    ///
    /// # Errors
    /// [`Failed`] if it is not the peer's genuine answer to this request.
    pub(crate) fn finish(&mut self, accept: &SetupHeader, rest: &[u8]) -> Result<Agreed, Failed> {
        let message = message::<{ 1 + SETUP_LEN }>(rest)?;
        if self.read.is_none() {
            let payload = read(&mut self.noise, message)?;
            self.read = Some((message.into(), payload));
        }
        let (known, [cipher, bound @ ..]) = self.read.as_ref().expect("read just now, or before");
        if **known != *message || *bound != bound_bytes(accept) {
            return Err(Failed);
        }
        agree(&mut self.noise, *cipher)
    }
}

impl Responder {
    /// Reads a request's extension.
    ///
    /// # Errors
    /// [`Failed`] if it is no first message of an exchange with this end's keys.
    pub(crate) fn new(
        own: Own<'_>,
        random: &mut Entropy,
        request: &SetupHeader,
        rest: &[u8],
    ) -> Result<Self, Failed> {
        let drawn = random.draw();
        // Bytes without the form of a message cost the sender nothing, so this end computes no key for them.
        let message = message::<1>(rest)?;
        let mut noise = begin(own, drawn, request, |builder| builder.build_responder());
        let [number] = read(&mut noise, message)?;
        let cipher = cipher_of(number)?;
        Ok(Self { noise, cipher })
    }

    /// Returns the identity that the peer claims; its later packets prove it.
    pub(crate) fn peer(&self) -> PublicKey {
        identity_of(&self.noise)
    }

    /// Returns the accept's extension, header and second message, and the result of the exchange.
    pub(crate) fn finish(mut self, own: Cipher, accept: &SetupHeader) -> (Box<[u8]>, Agreed) {
        let mut payload = [0; 1 + SETUP_LEN];
        payload[0] = own.number();
        payload[1..].copy_from_slice(&bound_bytes(accept));
        let extension = write(&mut self.noise, &payload);
        let agreed = agree(&mut self.noise, self.cipher.number());
        (extension, agreed.expect("both messages are written and read"))
    }
}

/// Returns a set-up header and its terms without the fields that change when the packet is
/// retransmitted: the load and the token.
fn bound_bytes(header: &SetupHeader) -> [u8; SETUP_LEN] {
    let mut bytes = [0; SETUP_LEN];
    let terms = header.terms.map(|terms| SetupParameters { token: 0, ..terms });
    SetupHeader { reason: 0, terms, ..*header }.emit(&mut bytes);
    bytes
}

fn begin(
    own: Own<'_>,
    drawn: [u8; 32],
    request: &SetupHeader,
    build: impl FnOnce(Builder<'_>) -> Result<HandshakeState, snow::Error>,
) -> HandshakeState {
    let params: NoiseParams =
        "Noise_IXpsk0_25519_ChaChaPoly_SHA256".parse().expect("a protocol of the framework");
    let nothing = PresharedKey::new([0; 32]);
    let preshared_key = &own.preshared_key.unwrap_or(&nothing).0;
    let prologue = bound_bytes(request);
    let builder = Builder::with_resolver(params, Box::new(Resolver(drawn)))
        .local_private_key(&own.identity.0)
        .and_then(|builder| builder.psk(0, preshared_key))
        .and_then(|builder| builder.prologue(&prologue));
    builder.and_then(build).expect("the pattern has all the keys that it takes")
}

fn write(noise: &mut HandshakeState, payload: &[u8]) -> Box<[u8]> {
    let mut out: Vec<u8> = alloc::vec![0; ExchangeHeader::LEN + MESSAGE_LEN + payload.len()];
    let len = noise
        .write_message(payload, &mut out[ExchangeHeader::LEN..])
        .expect("it is this end's turn, and the message has room");
    out.truncate(ExchangeHeader::LEN + len);
    let length = u16::try_from(len).expect("some hundred bytes");
    ExchangeHeader { protocol: ExchangeHeader::NOISE_IX_PSK0, length }.emit(&mut out);
    out.into_boxed_slice()
}

/// Returns the message in an extension; its payload must have `LEN` bytes.
fn message<const LEN: usize>(rest: &[u8]) -> Result<&[u8], Failed> {
    let (header, message, _) = ExchangeHeader::parse(rest).map_err(|_| Failed)?;
    let is_one =
        header.protocol == ExchangeHeader::NOISE_IX_PSK0 && message.len() == MESSAGE_LEN + LEN;
    is_one.then_some(message).ok_or(Failed)
}

/// Reads a message and returns its payload. A message that is not authentic leaves the state unchanged.
fn read<const LEN: usize>(noise: &mut HandshakeState, message: &[u8]) -> Result<[u8; LEN], Failed> {
    let mut payload = [0; LEN];
    match noise.read_message(message, &mut payload) {
        Ok(len) if len == LEN => Ok(payload),
        _ => Err(Failed),
    }
}

fn agree(noise: &mut HandshakeState, cipher: u8) -> Result<Agreed, Failed> {
    let cipher = cipher_of(cipher)?;
    let (first, second) = noise.dangerously_get_raw_split();
    let (sending, receiving) = if noise.is_initiator() { (first, second) } else { (second, first) };
    let (sending, receiving) = (Secret::new(sending), Secret::new(receiving));
    Ok(Agreed { sending, receiving, cipher, peer: identity_of(noise) })
}

fn identity_of(noise: &HandshakeState) -> PublicKey {
    let bytes = noise.get_remote_static().expect("both messages carry the sender's identity");
    PublicKey(bytes.try_into().expect("an X25519 key is 32 bytes"))
}

const fn cipher_of(number: u8) -> Result<Cipher, Failed> {
    match number {
        0 => Ok(Cipher::Aes128Gcm),
        1 => Ok(Cipher::Aes256Gcm),
        _ => Err(Failed),
    }
}

/// A resolver that returns the library's own primitives, with the owner's random bytes.
struct Resolver([u8; 32]);

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn snow::types::Random>> {
        Some(Box::new(Entropy::new(self.0)))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn snow::types::Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn snow::types::Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn snow::types::Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Initiator(..)")
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Responder(..)")
    }
}
