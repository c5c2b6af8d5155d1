//! A deterministic packet-level simulator that runs the transport exactly as shipped.
//!
//! A [`Scenario`] and a seed give a [`Report`], the same bytes every time:
//!
//! ```
//! use std::path::Path;
//!
//! use weft_sim::{Scenario, run};
//! use weft_units::Seed;
//!
//! let text = r#"
//!     topology = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 2 }
//!
//!     [[workload]]
//!     kind = "permutation"
//!     size = "100KB"
//! "#;
//! let scenario = Scenario::parse(text, Path::new("."))?;
//! let report = run(&scenario, Seed(1))?;
//! assert!(report.finished);
//! assert_eq!(report.workloads[0].flows.finished, 4);
//! assert_eq!(run(&scenario, Seed(1))?.to_json(), report.to_json());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`world`] is the event loop: it pops events and calls hosts' engines and the [`fabric`], which is every link and
//! switch. [`workload`] defines the hosts' traffic and [`fault`] the faults; [`check`] watches invariants, [`measure`]
//! takes the measurements. [`compare`] runs balancers on the same arrivals, [`experiment`] varies scenarios and
//! compares them with a paper's claims, [`swarm`] draws random worlds. The crate knows no internals of the transport,
//! no clock, and no threads but those of [`batch`], which runs whole simulations side by side, and those of
//! [`run_on`], which runs one on several.
#![deny(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod batch;
pub mod bench;
pub mod capture;
pub mod check;
pub mod compare;
pub mod datagram;
pub mod event;
mod event_queue;
pub mod experiment;
pub mod fabric;
pub mod fast_forward;
pub mod fault;
pub mod graph;
pub mod hooks;
pub mod host;
pub mod import;
pub mod link;
pub mod measure;
pub mod memory;
pub mod messenger;
pub mod nic;
pub mod overlay;
mod pace;
pub mod packet;
pub mod payload;
pub mod pcie;
pub mod perfetto;
pub mod port;
pub mod queue;
pub mod report;
mod run;
pub mod scenario;
pub mod stack;
mod steps;
pub mod swarm;
pub mod switch;
mod time;
pub mod timeline;
pub mod traffic;
pub mod workload;
pub mod world;

pub use batch::run_all;
pub use event_queue::EventQueue;
pub use hooks::{Advance, Cancel, Hooks};
pub use report::Report;
pub use run::{Outcome, RunError, build, run, run_on, run_watched, run_with, workloads};
pub use scenario::Scenario;
pub use time::{SimSpan, SimTime};
