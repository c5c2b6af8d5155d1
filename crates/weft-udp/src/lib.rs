//! Weft's transport on real packets: UDP sockets, a clock, and the loop between them and the
//! engine. Daemons and `libibverbs.so.1` build on this crate; measurements are in `weft-perf`.
//!
//! A [`Driver`] owns sockets, a clock and keys, and runs a [`Node`]: an engine and its owner. The overlay
//! and the RDMA device bring nodes of their own (`docs/design/driver.md`). An [`Agent`] is the node that
//! this crate has, an [`Endpoint`] whose [`Application`] owns the bytes. No privileges are needed.
//!
//! A packet's way through this crate: [`Driver::transmit`] has the node write packets, header and
//! payload, into the [`sockets::Outbox`], which passes all packets of one path to the kernel in one call; at
//! the receiver, [`sockets::Inbox`] receives a batch, and [`Driver::receive`] passes it to the node, which
//! passes headers to the engine and payload to the application.
//!
//! # Example
//!
//! Two agents on loopback, one message:
//!
//! ```
//! use weft_udp::{Agent, AgentConfig, Application, Endpoint};
//! use weft_transport::{ConnectionId, Event, Message, Payload, Placement};
//! use weft_units::{Duration, Instant};
//!
//! const GREETING: &[u8] = b"over every path at once";
//!
//! #[derive(Default)]
//! struct Greeter {
//!     received: Vec<u8>,
//!     done: bool,
//! }
//!
//! impl Application for Greeter {
//!     fn read(&mut self, _: ConnectionId, payload: Payload, out: &mut [u8]) {
//!         let start = payload.offset as usize;
//!         out.copy_from_slice(&GREETING[start..start + out.len()]);
//!     }
//!
//!     fn place(&mut self, _: Instant, placement: &Placement, bytes: &[u8]) {
//!         let start = placement.offset as usize;
//!         self.received.resize(GREETING.len(), 0);
//!         self.received[start..start + bytes.len()].copy_from_slice(bytes);
//!     }
//!
//!     fn on_event(&mut self, endpoint: &mut Endpoint, now: Instant, event: Event) {
//!         match event {
//!             Event::Connected { connection } => {
//!                 let length = GREETING.len() as u32;
//!                 let message = Message { token: 0, opcode: 0, tag: 0, length };
//!                 endpoint.submit(now, connection, message).expect("it is connected");
//!             }
//!             Event::Acked { .. } | Event::Delivered { .. } => self.done = true,
//!             _ => {}
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = AgentConfig::new("127.0.0.1:0".parse()?, AgentConfig::ethernet(4));
//! let mut server = Agent::open(&config.clone().accepting())?;
//! let mut client = Agent::open(&config)?;
//! let (to, now) = (server.local(), client.now());
//! client.endpoint().connect(now, to, 0)?;
//! let (mut there, mut here) = (Greeter::default(), Greeter::default());
//! while !(there.done && here.done) && client.now() < now + Duration::from_secs(10) {
//!     let _ = (client.turn(&mut here), server.turn(&mut there));
//! }
//! assert_eq!(there.received, GREETING);
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

mod agent;
mod clock;
mod delay_line;
mod driver;
mod encryption;
mod ethernet;
mod node;
mod port;
mod random;
mod settings;
pub mod sockets;
mod turn;
pub mod wait;

pub use agent::{Agent, AgentConfig, OpenError};
pub use clock::Clock;
pub use driver::{Budget, Driver, ReceiveCounters, Turn};
pub use encryption::{
    EncryptionSettings, KeyLog, cipher_name, describe_encryption, parse_cipher, reserve_overhead,
};
pub use node::{Node, SocketSet};
pub use port::PortConfig;
pub use random::random;
pub use settings::{BaseProfile, SettingError, SettingFault, TransportSettings, read_variables};
pub use turn::Application;
pub use wait::WaitMode;
pub use weft_seal::{Mode as EncryptionMode, SealConfig};
pub use weft_transport::Endpoint;
