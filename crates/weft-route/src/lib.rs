//! Steers flows through a fabric of ECMP routers: Astral's global route controller (section 4).
//!
//! * [`installed`] is what routers have installed, as data; [`Fabric`] the same in numbers, from which
//!   [`Fabric::path`] follows a flow hop by hop, exactly.
//!
//! * [`Telemetry`] cuts what ports report to windows, [`Alarms`] says where it is too much, [`Suspects`]
//!   whose flows these are, [`decide`] where they could go.
//! * [`Controller`] puts them together: it decides moves, sees whether they help, and undoes those that
//!   do not.
//! * [`simulate`] runs it on whole clusters of simulated switches.
//! * [`lease`] lets one controller act at a time.
//!
//! Nothing here reads a clock, opens a socket or starts a thread: time, samples and tables come in as
//! values, changes of routes go out as values.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod alarm;
mod controller;
pub mod fabric;
mod flow;
pub mod installed;
pub mod lease;
mod loads;
mod moves;
mod path;
mod paths;
pub mod simulate;
mod suspects;
mod telemetry;

pub use alarm::{Alarm, AlarmRules, Alarms, Change, Level};
pub use controller::{
    Action, Announced, Carried, Controller, ControllerConfig, Event, Job, JobError, JobFlow, Move,
    Pair, Stage, State, StateError, Stats, What,
};
pub use fabric::{End, Explanation, Fabric, HostId, LinkId, RouterId};
pub use flow::{Flow, FlowError, FlowRef};
pub use installed::{Installed, InstalledError, Prefix};
pub use loads::Loads;
pub use moves::{Decision, MoveRules, NoMove, decide};
pub use path::{LONGEST, Outcome, Path, Start};
pub use suspects::{Sample, Suspect, SuspectRules, Suspects};
pub use telemetry::{Doubt, PortReport, Telemetry, Window};
