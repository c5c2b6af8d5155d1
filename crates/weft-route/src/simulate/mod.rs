//! A simulation of a whole cluster at the level of flows, with the same controller that steers real routers.
//!
//! Flows share links with max-min fairness ([`rates`]); a collective progresses at the rate of its slowest flow. A link
//! marks packets if flows would send more than it carries: one in a hundred (DCQCN's P_max; Zhu et al., SIGCOMM 2015)
//! if they would send twice as much, and proportionally fewer below. As in the paper, the controller receives counters
//! every window and samples of the ports of alarmed routers.

mod control;
mod iterations;
mod jobs;
mod numbers;
pub mod rates;
mod run;
mod setup;
mod switches;
pub mod tables;
#[cfg(test)]
mod tests;

pub use iterations::Iterations;
pub use run::{Outcome, Simulation, WindowRow};
pub use setup::{Setup, SetupError};
pub use switches::{ApplyError, Switches, install, remove};
pub use weft_plan::collective::Collective;
