//! The measurement of the transport on real packets, for `weft perf`, labs and benches. No daemon and no library for
//! hosts depends on this crate.
//!
//! A measurement is a server without options and a client that sends its settings. The first message
//! of each connection is a [`Plan`]; the server answers that it is ready, or with its reason to refuse,
//! and the load follows. After the last message the client requests the server's [`Counts`], so that
//! a [`Report`] has both ends. [`baseline`] measures bare sockets with the same batches, for the
//! ratios of the report.
//!
//! Other parts: [`emulator`] is a fabric of several paths between two agents without root privileges, a [`AgentGroup`] is
//! several agents on one thread, [`idle`] measures the memory of idle connections, [`sniffer`] returns the datagrams of
//! an interface.
//!
//! ```
//! use std::sync::atomic::{AtomicBool, Ordering};
//! use std::thread;
//! use weft_perf::{Client, ClientConfig, Plan, Server, ServerConfig, TestKind};
//! use weft_udp::{AgentConfig, SealConfig, WaitMode};
//! use weft_units::Duration;
//!
//! let any_port = "127.0.0.1:0".parse()?;
//! let (transport, encryption) = (AgentConfig::ethernet(4), SealConfig::default());
//! let mut server = Server::open(&ServerConfig {
//!     local: any_port,
//!     transport: transport.clone(),
//!     encryption: encryption.clone(),
//!     wait: WaitMode::Block,
//! })?;
//! // One message of 1,000 bytes and its reply at a time, over four paths, every byte compared.
//! let client = Client::open(ClientConfig {
//!     local: any_port,
//!     server: server.local(),
//!     transport,
//!     plan: Plan::new(TestKind::Latency, 1_000, 1, true)?,
//!     connections: 1,
//!     duration: Duration::from_millis(50),
//!     encryption,
//!     wait: WaitMode::Block,
//! })?;
//! let stop = AtomicBool::new(false);
//! let report = thread::scope(|scope| {
//!     scope.spawn(|| server.run(&stop));
//!     let report = client.run(|_| {});
//!     stop.store(true, Ordering::Relaxed);
//!     report
//! })?;
//! assert!(report.messages > 0 && report.corrupt == 0);
//! println!("median of {} round trips: {} us", report.messages, report.latency_us.p50);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

pub mod baseline;
mod client;
mod crew;
pub mod emulator;
pub mod idle;
mod pattern;
mod plan;
mod report;
mod series;
mod server;
pub mod sniffer;

pub use client::{Client, ClientConfig, PerfError, Progress};
pub use crew::AgentGroup;
pub use plan::{Plan, PlanError, TestKind};
pub use report::{Counts, LatencyMicros, Report, TransportCounters, latency_histogram};
pub use series::Series;
pub use server::{Server, ServerConfig};
