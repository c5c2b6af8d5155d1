//! Messages over RDMA, with three kinds of object: a [`Context`] owns channels, a channel carries messages, and
//! a [`Message`] is bytes that may request an answer (X-RDMA, section IV). The crate has no clock, socket or
//! thread: its owner polls it.
//!
//! The path of a message through this crate:
//!
//! | step | out | in |
//! | --- | --- | --- |
//! | owner | [`Context::send`], `context/submit.rs` | [`Event::Message`], [`Context::release`] |
//! | window (algorithm 1) | `window.rs`, `channel/send.rs` | `window.rs`, `channel/receive.rs` |
//! | flow control | `flow/`, `context/flow.rs` | the same, for READs |
//! | bodies too long for a frame | remain in place | `channel/fetch.rs` READs them |
//! | frame ↔ bytes | `weft-wire/src/frame.rs` | the same |
//! | carrier | [`Verbs::post_send`], or `channel/stream.rs` | [`Context::poll`], or the same |
//!
//! It runs on any RDMA device that implements [`Verbs`]; [`Rnic`] is Weft's own, in process and in the
//! simulator. The crate opens no connection (the owner exchanges [`ChannelOffer`](weft_wire::ChannelOffer)s)
//! and delivers no message twice or before it is complete. Its design is explained in `docs/design/messages.md`.
//!
//! Two contexts on two devices, whose owner carries the packets:
//!
//! ```
//! use core::net::SocketAddr;
//! use weft_msg::{Config, Context, Event, Payload, Rnic};
//! # use weft_rnic::{Arrival, Device, Limits};
//! # use weft_transport::{EndpointConfig, Secret, TransportConfig};
//! use weft_units::{Duration, Instant, Seed};
//!
//! # fn device(at: SocketAddr, seed: Seed) -> Rnic {
//! #     let endpoint = EndpointConfig {
//! #         transport: TransportConfig { mtu: 1024, ..TransportConfig::stellar() },
//! #         receive_port: 4791,
//! #         thread_id: 0,
//! #         accept: true,
//! #         max_connections: 16,
//! #     };
//! #     let device = Device::new(Limits::default(), endpoint, seed, Secret::from_seed(seed));
//! #     Rnic::new(device.unwrap(), at).unwrap()
//! # }
//! # fn carry(hosts: &mut [Context<Rnic>; 2], this: usize, from: SocketAddr, now: Instant) {
//! #     let mut packets = vec![];
//! #     let device = hosts[this].verbs_mut();
//! #     device.handle_timeout(now);
//! #     while device.poll_transmit(now, |sent, payload| packets.push((*sent, payload.to_vec()))) {}
//! #     for (sent, payload) in packets {
//! #         let arrival = Arrival { from, received_at: now, congestion_experienced: false, hops: 3 };
//! #         let device = hosts[1 - this].verbs_mut();
//! #         device.handle_packet(now, &arrival, &sent.packet, sent.rdma.as_ref(), &payload);
//! #     }
//! # }
//! let at = [1, 2].map(|host| SocketAddr::from(([10, 0, 0, host], 4791)));
//! let mut hosts = [0, 1].map(|host| {
//!     let seed = Seed(1).child("host", host as u64);
//!     Context::new(Config::default(), device(at[host], seed), seed, [7; 16]).unwrap()
//! });
//! let mut now = Instant::from_nanos(1_000_000_000);
//! // The owner carries the offers to the other host, for example over TCP.
//! let (channel, offer) = hosts[0].offer(now)?;
//! let (_, answer) = hosts[1].accept(now, &offer)?;
//! hosts[0].establish(now, channel, &answer)?;
//! hosts[0].send(now, channel, Payload::Copy(b"hello"))?;
//!
//! let body = 'received: loop {
//!     now = now + Duration::from_micros(10);
//!     for host in [0, 1] {
//!         while hosts[host].poll(now) {}
//!         if let Some(Event::Message { message, .. }) = hosts[host].poll_event() {
//!             let body = hosts[host].body(&message).to_vec();
//!             hosts[host].release(now, message);
//!             break 'received body;
//!         }
//!         // `Rnic::poll_transmit` of this host, `Rnic::handle_packet` of the other.
//!         carry(&mut hosts, host, at[host], now);
//!     }
//! };
//! assert_eq!(body, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod calls;
mod carrier;
mod channel;
mod config;
mod context;
mod event;
mod filter;
mod flow;
mod journal;
mod memory;
mod rnic;
mod shared_receives;
mod stats;
#[cfg(test)]
mod tests;
mod trace;
mod verbs;
mod window;

pub use carrier::Carrier;
pub use config::{Config, ConfigError, Parameter};
pub use context::{ChannelId, Context, OfferError, Payload, SwitchError};
pub use event::{CloseReason, Event, Message, ProtocolError, SendError, Slow};
pub use filter::{CallKind, Direction, Fault, Rule, RuleError};
pub use journal::{Journal, Note, NoteKind};
pub use memory::{Block, MemoryUse};
pub use rnic::Rnic;
pub use stats::{ChannelState, ChannelStats, ChannelStatus, ContextStats, FlowStatus, TracedTimes};
pub use trace::{ClockEstimate, Decomposition};
pub use verbs::{
    Completion, DeviceError, Qp, QpSizes, Region, Registrar, Slice, Verbs, Work, rnr_retry,
};
pub use weft_wire::CallRole;
pub use window::WindowError;
