//! Steers flows through a fabric of ECMP routers: Astral's global route controller (section 4).
//!
//! * [`installed`] is what routers have installed, as data; [`Fabric`] the same in numbers, from which
//!   [`Fabric::path`] follows a flow hop by hop, exactly.
//!
//! Nothing here reads a clock, opens a socket or starts a thread: time, samples and tables come in as
//! values, changes of routes go out as values.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod fabric;
mod flow;
pub mod installed;
mod path;

pub use fabric::{End, Explanation, Fabric, HostId, LinkId, RouterId};
pub use flow::{Flow, FlowError};
pub use installed::{Installed, InstalledError, Prefix};
pub use path::{LONGEST, Outcome, Path, Start};
