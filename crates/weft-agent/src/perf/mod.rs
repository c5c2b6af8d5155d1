//! Measures the transport on real packets: a server that needs no flags and a client that says
//! what is to be measured.
//!
//! The first message of each connection is a [`Plan`]; the server answers that it is ready, or why
//! not, and the load follows. After the last message the client asks for the server's [`Counts`],
//! so that a [`Report`] has both ends. [`baseline`] measures what bare sockets do with the same
//! batches, for the ratios that matter.

pub mod baseline;
mod client;
mod pattern;
mod plan;
mod report;
mod series;
mod server;

pub use client::{Client, ClientConfig, PerfError, Progress};
pub use plan::{Plan, PlanError, TestKind};
pub use report::{Counts, LatencyMicros, Report, TransportCounters, latency_histogram};
pub use series::Series;
pub use server::{Server, ServerConfig};
