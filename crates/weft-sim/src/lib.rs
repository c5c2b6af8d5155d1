//! A deterministic packet-level simulator that runs the transport exactly as shipped.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod batch;
pub mod bench;
pub mod check;
pub mod event;
mod event_queue;
pub mod experiment;
pub mod fabric;
pub mod fault;
pub mod host;
pub mod link;
pub mod measure;
pub mod nic;
pub mod packet;
pub mod queue;
mod registry;
pub mod report;
mod run;
pub mod scenario;
pub mod swarm;
pub mod switch;
mod time;
pub mod traffic;
pub mod workload;
pub mod world;

pub use batch::run_all;
pub use event_queue::EventQueue;
pub use report::Report;
pub use run::{RunError, build, run};
pub use scenario::Scenario;
pub use time::{SimSpan, SimTime};
