//! Weft's transport on real packets: UDP sockets, a clock, and the loop between them and the
//! engine.
//!
//! [`Agent`] owns an [`Endpoint`], the sockets it speaks
//! through and the clock it lives by; an [`Application`] owns the bytes. No privileges are needed.
//!
//! A packet's way through this crate: [`turn`](Agent::turn) asks the engine for a packet, lays its
//! header and payload into the [`udp::Outbox`], which hands everything of one path to the kernel at
//! once; on the other side [`udp::Inbox`] receives a batch, and `turn` gives header by header to the
//! engine and payload by payload to the application.
//!
//! [`perf`] measures it, [`emulator`] puts a fabric of several paths between two agents on machines
//! where nobody is root, [`idle`] counts what a connection costs that does nothing.
#![deny(unsafe_code)]

mod agent;
mod clock;
pub mod emulator;
pub mod idle;
pub mod perf;
mod turn;
pub mod udp;
mod wait;

pub use agent::{Agent, AgentConfig, AgentCounters, OpenError};
pub use clock::Clock;
pub use turn::{Application, Turn};
pub use wait::WaitMode;
pub use weft_transport::Endpoint;
