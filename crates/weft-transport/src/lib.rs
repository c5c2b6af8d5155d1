//! A reliable, multipath transport that owns no clock, no socket, no thread and no entropy.
//!
//! [`Endpoint`] is the whole interface, except for [`Direct`], its counterpart between processes of one host. Its owner
//! issues commands (`connect`, `submit`, `placed`, `close`), passes in packets (`handle_packet`) and the time
//! (`handle_timeout`), and drains the outputs (`poll_transmit`, or `poll_burst` on a hot path; `poll_event`,
//! `poll_timeout`). It never touches payload: it returns the place of each packet's payload, and reports complete
//! messages in order.
//!
//! A packet's way through this crate:
//!
//! | step | out | in |
//! | --- | --- | --- |
//! | message → packets | `connection/message.rs`, cut by `egress.rs` | `connection/reassembly.rs` |
//! | may we send? | `congestion/<name>.rs` | `connection/ack_received.rs`, `loss.rs`, `tail.rs` |
//! | which path? | `path/<name>.rs` | the same file's `on_feedback` |
//! | which connection? | `endpoint/transmit.rs`, in turn | `endpoint/mod.rs`, by connection id |
//!
//! It opens no sockets, reads no clock, spawns no threads, encrypts nothing, and knows nothing of files, memory regions
//! or guests: `weft-udp` and `weft-sim` own those.
//!
//! # Example
//!
//! Two endpoints, connected by a function call instead of a network:
//!
//! ```
//! use std::net::SocketAddr;
//! use weft_transport::{
//!     Arrival, Endpoint, EndpointConfig, Event, Message, Secret, TransportConfig, Verdict,
//! };
//! use weft_units::{Duration, Instant, Seed};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = EndpointConfig {
//!     transport: TransportConfig::stellar(),
//!     receive_port: 4791,
//!     thread_id: 0,
//!     accept: true,
//!     max_connections: 16,
//! };
//! let at: [SocketAddr; 2] = ["10.0.0.1:4791".parse()?, "10.0.0.2:4791".parse()?];
//! // An owner on a real network takes the seed and the secret from the operating system.
//! let endpoint = |seed| Endpoint::new(config.clone(), seed, Secret::from_seed(seed));
//! let mut ends = [endpoint(Seed(1))?, endpoint(Seed(2))?];
//! let mut now = Instant::EPOCH;
//! let mut sent = false;
//! let id = ends[0].connect(now, at[1], 0)?;
//!
//! for _ in 0..1000 {
//!     now += Duration::from_micros(1);
//!     for from in 0..2 {
//!         while let Some(transmit) = ends[from].poll_transmit(now) {
//!             let arrival = Arrival {
//!                 from: at[from],
//!                 received_at: now,
//!                 congestion_experienced: false,
//!                 hops: 1,
//!             };
//!             let len = transmit.payload.map_or(0, |payload| payload.len);
//!             let to = &mut ends[1 - from];
//!             if let Verdict::Place(place) = to.handle_packet(now, &arrival, &transmit.packet, len) {
//!                 // Here the owner copies `len` bytes to `place.offset` of message `place.message`.
//!                 to.placed(now, place.connection, place.psn)?;
//!             }
//!         }
//!         ends[from].handle_timeout(now);
//!     }
//!     match ends[0].poll_event() {
//!         Some(Event::Connected { connection }) => {
//!             let message = Message { token: 7, opcode: 0, tag: 0, length: 1_000_000 };
//!             ends[0].submit(now, connection, message)?;
//!         }
//!         Some(Event::Acked { connection, token: 7 }) => {
//!             assert_eq!(connection, id);
//!             sent = true;
//!         }
//!         _ => {}
//!     }
//! }
//! assert!(sent);
//! # Ok(())
//! # }
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod congestion;
pub mod path;
pub mod recovery;

mod config;
mod connection;
mod direct;
mod endpoint;
mod error;
mod event;
mod external;
mod pool;
mod profile;
mod stats;
mod timers;

#[cfg(test)]
mod tests;

pub use config::{ConfigError, RecoveryConfig, Retransmission, SettingsTable, TransportConfig};
pub use congestion::{DcqcnConfig, HpccConfig, NsccConfig, TimelyConfig};
pub use connection::{ConnectionStats, PrefetchStage};
pub use direct::{Acknowledgement, Direct, DirectConfig, LinkId, Outgoing};
pub use endpoint::{
    Admission, Arrival, ConnectionId, Departure, EndedConnection, Endpoint, EndpointConfig,
    Message, Payload, Peer, Secret, SetupClass, SetupFault, ThreadBits, Transmit, TrimmedAt,
};
pub use error::{ConnectError, PlacedError, SubmitError};
pub use event::{CloseReason, DropReason, Event, Placement, Verdict};
pub use external::{ControlFactory, External, PolicyFactory};
pub use path::{DwrrConfig, FlowBenderConfig, HopperConfig, MpRdmaConfig, RepsConfig};
pub use profile::Profile;
pub use stats::{Counter, CounterUnit, Stats};
