//! Measures the transport on real packets: a server without options and a client that sends the
//! settings of the measurement.
//!
//! The first message of each connection is a [`Plan`]; the server answers that it is ready, or its
//! reason to refuse, and the load follows. After the last message the client requests the server's
//! [`Counts`], so that a [`Report`] has both ends. [`baseline`] measures bare sockets with the same
//! batches, for the ratios of the report.

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
