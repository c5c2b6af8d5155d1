//! The route controller's hands and eyes on real routers (Astral, section 4): an sFlow agent for Linux and
//! a collector, tables read as they are installed, moves applied by the kernel or by FRR, verified and
//! undone.
//!
//! | step | where |
//! | --- | --- |
//! | which routers there are, and how they are cabled | [`Inventory`] |
//! | packets sampled and counters sent | [`agent`] |
//! | datagrams heard | [`Collector`] |
//! | tables read | [`Inventory::read_tables`] |
//! | who may steer | [`Lease`] |
//! | moves made | [`RouterEntry::plan`], [`RouterEntry::carry_out`], [`RouterEntry::await_change`] |
//! | jobs announced to it | [`Door`] |
//! | all of it, again and again | [`Daemon`] |
//!
//! What is decided, and why, is `weft-route`'s: this crate tells it what was seen and does what it orders.
#![deny(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "routers are real: they are waited for, by a real clock"
)]

pub mod agent;
mod apply;
mod collect;
mod config;
mod daemon;
mod error;
mod inventory;
mod job_table;
mod lease;
mod reach;
mod tables;

pub use apply::{Change, PROTOCOL, Plan};
pub use collect::{Collector, CollectorCounters, Heard};
pub use config::SteerConfig;
pub use daemon::{
    Announcement, AskError, Daemon, Door, JobView, LinkView, MoveView, NodeView, Picture,
    PlannedJob, RefusedView,
};
pub use error::SteerError;
pub use inventory::{Inventory, Method, PortEntry, RouterEntry};
pub use job_table::read_job_table;
pub use lease::Lease;
