//! Steers flows through a fabric of ECMP routers: Astral's global route controller (section 4).
//!
//! * [`installed`] is the installed state of routers, as data; [`Fabric`] is the same state as numbers, from which
//!   [`Fabric::path`] predicts a flow's path exactly, hop by hop.
//!
//! * [`Telemetry`] splits port reports into windows, [`Alarms`] detects congested ports, [`Suspects`] ranks the flows
//!   that cross them, and [`decide`] finds other next hops for those flows.
//! * [`Bursts`] are those of a job that sends once per iteration; links are reserved for the coming ones.
//! * [`Probes`] finds links that lose or delay packets from probes between hosts.
//! * [`Controller`] combines them: it decides moves, verifies that each move helps, and undoes those that do not.
//! * [`simulate`] runs the controller on whole clusters of simulated switches.
//! * [`lease`] lets one controller act at a time.
//!
//! This crate never reads a clock, opens a socket or starts a thread: time, samples and tables come in as values,
//! and changes of routes go out as values.
//!
//! ```
//! use weft_route::{Fabric, Flow};
//!
//! // Two leaves and two spines, as `weft route tables` reads them.
//! let text = include_str!("../tests/golden/installed/two-by-two.toml");
//! let fabric = Fabric::new(toml::from_str(text)?)?;
//! // The source port decides at which spine the leaf sends the flow.
//! let path = |port| {
//!     let flow = Flow::new(([10, 1, 0, 2], port).into(), ([10, 2, 0, 2], 4791).into(), 17);
//!     fabric.path(&flow.expect("both addresses are IPv4"))
//! };
//! let first = path(49_152);
//! assert!(first.arrives());
//! assert!((49_153..49_163).any(|port| path(port).links() != first.links()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod alarm;
mod bursts;
mod controller;
pub mod fabric;
mod flow;
pub mod installed;
pub mod lease;
mod loads;
mod moves;
mod path;
mod paths;
mod probes;
pub mod simulate;
mod suspects;
mod telemetry;

pub use alarm::{Alarm, AlarmRules, Alarms, Change, Level};
pub use bursts::{Bursts, ReservationRules};
pub use controller::{
    Action, Announced, Barred, Carried, Controller, ControllerConfig, Event, EventKind, Job,
    JobError, JobFlow, Known, Move, Overview, Pair, PlacedJob, PortSearch, RECORDS_VERSION, Record,
    RecordKey, RecordKeyError, Stage, State, StateError, Stats, TakenOver,
};
pub use fabric::{End, Explanation, Fabric, HostId, LinkId, RingOrder, RouterId};
pub use flow::{Flow, FlowError, FlowRef};
pub use installed::{Installed, InstalledError, Prefix};
pub use loads::Loads;
pub use moves::{Decision, MoveQuery, MoveRules, NoMove, decide};
pub use path::{MAX_PATH_LINKS, Outcome, Path, Start};
pub use probes::{
    LinkFault, ProbeAlarm, ProbeCounters, ProbeError, ProbeReport, ProbeRules, ProbedPath, Probes,
    RoundTrip,
};
pub use suspects::{Sample, Suspect, SuspectRules, Suspects};
pub use telemetry::{MIN_PACKET_BYTES, PortReport, Telemetry, TelemetryError, Window};
