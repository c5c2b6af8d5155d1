//! Encryption of the transport's packets, between the transport and the network: outgoing packets are sealed after the
//! transport has built them, incoming packets are opened before the transport parses them.
//!
//! ```text
//! UDP | sealed header: key, IV, SPI | packet of the transport, encrypted | tag
//!       12 bytes                      unchanged length                     16 bytes
//! ```
//!
//! The layout is that of Google's PSP (SPI, IV, version; AES-GCM). The key exchange follows WireGuard: two messages of
//! the Noise protocol framework, `Noise_IXpsk0_25519_ChaChaPoly_SHA256`, in the request and the accept of a connection.
//! Each connection has its own keys in each direction. Both ends draw new X25519 keys for each connection and erase
//! them, so that an attacker who steals a host's identity later cannot decrypt recorded packets (forward secrecy).
//!
//! * [`Seals`] is the engine: the connections of one endpoint, their exchanges and their keys. It owns no socket,
//!   clock or entropy; its owner gives it 32 random bytes once.
//! * [`SealConfig`] is the configuration: [`Mode`], cipher, this host's [`PrivateKey`], a [`PresharedKey`], and the
//!   [`PublicKey`]s of accepted peers.
//!
//! Without a pre-shared key and without a list of peers the exchange does not authenticate the peer: it protects
//! against eavesdroppers and off-path forgery, but not against an attacker on the path during the set-up of a
//! connection (`docs/threats.md`).
//!
//! A packet's number counts the connection's packets over all paths. A receiver remembers the last 65,536 numbers
//! ([`Seals::open`]), so that 128 paths may differ by that many packets. Keys are replaced
//! ([`SealConfig::key_lifetime`]): each is derived from the previous one by a one-way function.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod budget;
mod channel;
mod config;
mod counters;
mod entropy;
mod exchange;
mod identity;
mod key;
#[cfg(test)]
mod proofs;
mod seals;
mod window;

pub use config::{Mode, SealConfig};
pub use counters::SealCounters;
pub use identity::{ParseKeyError, PresharedKey, PrivateKey, PublicKey};
pub use seals::{OpenError, Seals, Wrap};
