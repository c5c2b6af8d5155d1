//! Encryption of the transport's packets, between the transport and the network: what leaves is sealed after the
//! transport has made it, what arrives is opened before the transport reads it.
//!
//! ```text
//! UDP | sealed header: key, IV, SPI | packet of the transport, encrypted | tag
//!       12 bytes                      as long as before                    16 bytes
//! ```
//!
//! The layout is Google's PSP's (SPI, IV, version; AES-GCM), the key exchange is WireGuard's idea: two messages of the
//! Noise protocol framework, `Noise_IXpsk0_25519_ChaChaPoly_SHA256`, which the request and the accept of a connection
//! carry. Each connection has keys of its own in each direction. Both ends draw new X25519 keys for each connection
//! and forget them, so that whoever steals a host's identity later cannot open what was recorded (forward secrecy).
//!
//! * [`Seals`] is the engine: the connections of one endpoint, their exchanges and their keys. It owns no socket,
//!   clock or entropy; its owner gives it 32 random bytes once.
//! * [`SealConfig`] says what is agreed to: [`Mode`], cipher, this host's [`PrivateKey`], a [`PresharedKey`], and the
//!   peers that are accepted by their [`PublicKey`]s.
//!
//! Without a pre-shared key and without a list of peers the exchange authenticates nobody: it keeps out who listens
//! and who forges packets from elsewhere, not who sits between the two ends while a connection is set up
//! (`docs/threats.md`).
//!
//! A packet's number is a count of the connection's packets over all paths. A receiver remembers the last 65,536 of
//! them ([`Seals::open`]), so that 128 paths may differ by as many packets. Keys follow one another
//! ([`SealConfig::key_lifetime`]): the next is computed from the one before, which cannot be computed from it.
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
