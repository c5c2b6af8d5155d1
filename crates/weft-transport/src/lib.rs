//! A reliable, multipath transport that owns no clock, no socket, no thread and no entropy.
//!
//! [`Endpoint`] is the whole of it. Its owner gives it commands (`connect`, `submit`, `placed`,
//! `close`), tells it what arrived (`handle_packet`) and what time it is (`handle_timeout`), and
//! drains what it wants to do (`poll_transmit`, `poll_event`, `poll_timeout`). It never touches
//! payload: it says where each packet's payload belongs, and in which order messages are complete.
//!
//! A packet's way through this crate:
//!
//! | step | out | in |
//! | --- | --- | --- |
//! | message → packets | `connection/egress.rs` | `connection/reassembly.rs` |
//! | may we send? | `congestion/<name>.rs` | `connection/ack_received.rs`, `loss.rs` |
//! | which path? | `path/<name>.rs` | the same file's `on_feedback` |
//! | which connection? | `endpoint.rs` | `endpoint.rs`, by connection id |
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod congestion;
pub mod path;

mod config;
mod connection;
mod endpoint;
mod error;

mod event;
mod pool;
mod registry;
mod stats;
mod timers;

#[cfg(test)]
mod tests;

pub use config::{ConfigError, Retransmission, TransportConfig};
pub use endpoint::{Arrival, ConnectionId, Endpoint, EndpointConfig, Message, Payload, Transmit};
pub use error::{ConnectError, PlacedError, SubmitError};
pub use event::{CloseReason, DropReason, Event, Placement, Verdict};
pub use stats::Stats;
