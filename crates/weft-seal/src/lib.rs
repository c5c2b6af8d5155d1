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
//!   clock or entropy; its owner passes in 32 random bytes once. [`Seals::ingest`] passes received packets to a
//!   [`PacketHandler`].
//! * [`SealConfig`] is the configuration: [`Mode`], cipher, this host's [`PrivateKey`], a [`PresharedKey`], and the
//!   [`PublicKey`]s of accepted peers.
//!
//! Without a pre-shared key and without a list of peers the exchange does not authenticate the peer: it protects
//! against eavesdroppers and off-path forgery, but not against an attacker on the path during the set-up of a
//! connection (`docs/threats.md`).
//!
//! A packet's number counts the connection's packets over all paths. A receiver remembers the last 65,536 numbers
//! ([`Seals::open`]), so that one path may lag behind another by 65,535 packets. Keys are replaced
//! ([`SealConfig::key_lifetime`]): each is derived from the previous one by a one-way function.
//!
//! Two ends agree on keys while their connection is set up; a packet that one seals the other opens, once:
//!
//! ```
//! use weft_seal::{OpenError, SealConfig, Seals, Wrap};
//! use weft_transport::{ConnectionId, SetupClass};
//! use weft_wire::{DataHeader, Packet, SealedHeader};
//! # use weft_wire::{SetupHeader, SetupKind, SetupParameters, U4};
//! # let setup = |kind, local_cid, destination_cid| SetupHeader {
//! #     kind, version: U4::truncate(1), cc_type: U4::truncate(0), thread_id: 0, reason: 0, local_cid,
//! #     destination_cid, terms: Some(SetupParameters { receive_port: 4791, token: 1, ..SetupParameters::default() }),
//! # };
//! # let at = [1, 2].map(|host| std::net::SocketAddr::from(([192, 0, 2, host], 4791)));
//! # // Returns the bytes that an end appends to a set-up packet for the other.
//! # let exchange = |seals: &mut Seals, to, connection, header| {
//! #     let wrap = seals.wrap(&to, Some(connection), &Packet::Setup(header));
//! #     let mut bytes = vec![0; wrap.len()];
//! #     seals.seal(wrap, 0, &mut bytes);
//! #     bytes
//! # };
//! let (a, b) = (ConnectionId(7), ConnectionId(8));
//! let [mut alice, mut bob] = [1, 2].map(|random| Seals::new(SealConfig::default(), [random; 32]));
//! # let request = setup(SetupKind::Request, a.0, 0);
//! let first = exchange(&mut alice, at[1], a, request);
//! let _ = bob.admit(at[0], &request, &first, SetupClass::New);
//! # let accept = setup(SetupKind::Accept, b.0, a.0);
//! let second = exchange(&mut bob, at[0], b, accept);
//! let _ = alice.admit(at[1], &accept, &second, SetupClass::Connection(a));
//! assert!(alice.is_sealed(a));
//!
//! let packet = Packet::data(DataHeader { destination_cid: b.0, ..DataHeader::default() }, None);
//! let mut datagram = vec![7; Packet::MAX_LEN + SealedHeader::OVERHEAD];
//! let wrap = Wrap::Sealed(a);
//! packet.emit(wrap.inside_mut(0, &mut datagram));
//! alice.seal(wrap, 0, &mut datagram);
//! let mut again = datagram.clone();
//! assert!(bob.open(&mut datagram, 0).is_ok());
//! assert!(matches!(bob.open(&mut again, 0), Err(OpenError::Replayed { .. })));
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod budget;
mod channel;
mod config;
mod counters;
mod entropy;
mod error;
mod exchange;
mod identity;
mod ingest;
mod key;
#[cfg(test)]
mod proofs;
mod seals;
mod window;

pub use config::{Mode, SealConfig, UnknownMode};
pub use counters::SealCounters;
pub use error::OpenError;
pub use identity::{ParseKeyError, PresharedKey, PrivateKey, PublicKey};
pub use ingest::PacketHandler;
pub use seals::{Seals, Wrap};
