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
