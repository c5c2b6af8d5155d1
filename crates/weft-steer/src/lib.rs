//! The route controller on real routers (Astral, section 4): an sFlow agent for Linux and a collector, installed tables
//! read from routers, and moves that the kernel, FRR or a gNMI server applies, which are verified and undone.
//!
//! | step | where |
//! | --- | --- |
//! | the routers and their cables | [`Inventory`] |
//! | packets sampled and counters sent | [`agent`] |
//! | datagrams received | [`Collector`] |
//! | tables read | [`Inventory::read_tables`] |
//! | the right to steer | [`Lease`] |
//! | several controllers, of which one leads | [`ClusterConfig`] |
//! | moves applied | [`RouterEntry::plan`], [`RouterEntry::carry_out`], [`RouterEntry::await_change`] |
//! | jobs announced, probes reported | [`Handle`] |
//! | probes of a host | [`probe`] |
//! | all of it, in a loop | [`Daemon`] |
//!
//! `weft-route` decides: this crate passes it the measurements and carries out its orders.
//!
//! ```
//! use weft_route::{Fabric, Installed};
//! use weft_steer::{Collector, SteerConfig};
//! use weft_units::Instant;
//!
//! let config = SteerConfig::parse(
//!     r#"
//!     management = "10.0.0.254"
//!
//!     [[router]]
//!     name = "leaf-0"
//!     reach = ["ssh", "-oBatchMode=yes", "leaf-0"]
//!     agent = "10.0.0.1"
//!     "#,
//! )?;
//! assert_eq!(config.listen().to_string(), "10.0.0.254:6343");
//! // Datagrams are accepted from the agents of the inventory only.
//! let mut collector = Collector::new(&config.inventory()?);
//! let fabric = Fabric::new(Installed::default())?;
//! let mut received = vec![];
//! collector.ingest(b"not sFlow", "10.0.0.66".parse()?, Instant::EPOCH, &fabric, &mut received);
//! collector.ingest(b"not sFlow", "10.0.0.1".parse()?, Instant::EPOCH, &fabric, &mut received);
//! let counters = collector.counters();
//! assert_eq!((counters.refused, counters.malformed, received.len()), (1, 1, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "routers are real: they are waited for, by a real clock"
)]

pub mod agent;
mod apply;
mod cluster;
mod collect;
mod config;
mod daemon;
mod error;
mod gnmi;
mod inventory;
mod job_table;
mod lease;
pub mod probe;
mod reach;
mod tables;

pub use apply::{Change, PROTOCOL, Plan, Refusal};
pub use cluster::ClusterConfig;
pub use collect::{CollectedItem, Collector, CollectorCounters, MarksSource};
pub use config::SteerConfig;
pub use daemon::{
    Announcement, BarredView, BurstsView, Daemon, Handle, JobView, Leader, LinkView, MoveView,
    NodeView, PlannedJob, PortsRequest, ProbeAlarmView, ProbesView, ReadInventory, RefusedView,
    RequestError, Role, SenderPort, SenderPorts, View,
};
pub use error::{ConfigError, InventoryError, SteerError};
pub use gnmi::{
    GnmiError, GnmiSettings, GnmiSettingsError, GnmiTls, MarkCounters, RouteSource, TreeFault,
};
pub use inventory::{Inventory, Method, PortEntry, RouterEntry};
pub use job_table::{JobTableError, read_job_table};
pub use lease::Lease;
pub use tables::AnswerFault;
pub use weft_etcd::{EtcdSettings, EtcdTls};
