//! Parsers and writers of packet headers: BIFROST's data, set-up and ACK headers bit for bit, and
//! the Ethernet, IP, UDP, VXLAN and virtio-net headers around them.
//!
//! A datagram of the transport begins with one of three headers or the sealed header; the first byte
//! is its type. RDMA and messages are carried directly over UDP, tenants' frames inside VXLAN:
//!
//! ```text
//! Ethernet | IPv4 or IPv6 | UDP | data header | message header | payload      messages
//! Ethernet | IPv4 or IPv6 | UDP | data header | message header | RDMA header | payload
//! Ethernet | IPv4 or IPv6 | UDP | VXLAN | data header | tenant's frame        VPC (BIFROST)
//!                                         ACK header | bitmap words
//!                                         set-up header | terms
//! Ethernet | IPv4 or IPv6 | UDP | VXLAN | sealed header | packet or tenant's frame, encrypted | tag
//! ```
//!
//! [`Packet`] is the transport's part of that; an [`RdmaHeader`] is payload to the transport. Every
//! header is a plain struct of native types with `parse`, which splits bytes into header and rest, and
//! `emit`, which writes it. Every value can be emitted, and parsing returns it unchanged. Bytes are
//! untrusted: invalid bytes give a [`ParseError`] with the offending numbers, never a panic.
//!
//! ```
//! use weft_wire::{DataHeader, MessageHeader, Packet};
//!
//! let header = DataHeader { psn: 17, destination_cid: 0xabcd, ..DataHeader::default() };
//! let message = MessageHeader { opcode: 1, tag: 0, id: 9, offset: 0, length: 5 };
//! let packet = Packet::data(header, Some(message));
//!
//! let mut datagram = [0; Packet::MAX_LEN + 5];
//! let headers = packet.emit(&mut datagram);
//! datagram[headers..headers + 5].copy_from_slice(b"hello");
//!
//! let (parsed, payload) = Packet::parse(&datagram[..headers + 5])?;
//! assert_eq!((parsed, payload), (packet, &b"hello"[..]));
//! assert_eq!(
//!     parsed.to_string(),
//!     "data v0 > 0000abcd psn 17 path 0 cc 0 t1 0, message 9 op 1 offset 0 of 5"
//! );
//! # Ok::<(), weft_wire::ParseError>(())
//! ```
//!
//! [`spec`] holds the position of every field; `docs/reference/wire.md` is generated from it. The crate
//! makes no decisions: the transport checks versions, windows and connection ids.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod ack;
mod bits;
pub mod checksum;
mod cut;
mod data;
mod display;
mod ecn;
mod error;
mod eth;
mod exchange;
mod frame;
mod ipv4;
mod ipv6;
mod layout;
mod message;
mod offer;
mod packet;
mod rdma;
mod sealed;
mod setup;
pub mod sflow;
pub mod spec;
mod udp;
mod virtio_net;
mod vxlan;

pub use ack::{AckHeader, AckType, BITMAP_PACKETS, Bitmap};
pub use bits::{Bits, NarrowBits, U2, U3, U4, U5, U6, U11, U13, U20, U24, WideBits};
pub use cut::CutDatagram;
pub use data::{DataHeader, NextHeader};
pub use ecn::Ecn;
pub use error::ParseError;
pub use eth::{EtherType, EthernetHeader, MacAddr};
pub use exchange::ExchangeHeader;
pub use frame::{CallRole, FrameHeader, FrameKind, RemoteBody, SequenceWord, TraceExtension};
pub use ipv4::{Ipv4Header, Ipv4Options};
pub use ipv6::Ipv6Header;
pub use message::MessageHeader;
pub use offer::ChannelOffer;
pub use packet::{PACKET_TYPES, Packet};
pub use rdma::{
    AtomicKind, AtomicOperands, AtomicOperation, MissingOperands, RdmaHeader, RdmaOpcode,
    RdmaOperation, RdmaRemote, RdmaService, SendExtension,
};
pub use sealed::{Cipher, SealedContent, SealedHeader};
pub use setup::{SetupHeader, SetupKind, SetupParameters};
pub use udp::UdpHeader;
pub use virtio_net::{GsoType, VirtioNetHeader};
pub use vxlan::{VxlanHeader, VxlanNext};
