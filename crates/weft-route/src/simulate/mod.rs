//! A whole cluster at the level of flows, with the same controller that steers real routers.
//!
//! Flows share links max-min fairly ([`rates`]); a collective goes at the pace of its slowest flow.
//! A link marks packets where flows would send more than it carries: one in a hundred (DCQCN's
//! P_max; Zhu et al., SIGCOMM 2015) where they would send twice as much, in proportion below. The
//! controller sees counters every window and samples of alarmed routers' ports, as the paper's does.

mod control;
mod jobs;
mod outcome;
pub mod rates;
mod run;
mod setup;
mod switches;
pub mod tables;
#[cfg(test)]
mod tests;

pub use outcome::{Outcome, WindowRow};
pub use run::Simulation;
pub use setup::{Collective, Setup, SetupError};
pub use switches::{Switches, install, remove};
