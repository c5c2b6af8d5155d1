//! What hosts send to each other.

use std::fmt::Debug;

use crate::traffic::Notice;
use crate::world::Session;

mod permutation;

pub use permutation::{Flow, Flows};

/// Decides what is sent, and reacts to what arrives.
pub trait Workload: Debug + Send {
    /// The run begins.
    fn start(&mut self, session: &mut Session<'_>);

    /// Something it waited for has happened.
    fn notice(&mut self, notice: &Notice, session: &mut Session<'_>);

    /// Whether it has all it waits for.
    fn is_done(&self) -> bool;
}

/// Why a workload does not fit a topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A host that does not exist.
    #[error("host {got} does not exist; there are {hosts}")]
    NoSuchHost {
        /// What was named.
        got: u32,
        /// How many there are.
        hosts: u32,
    },
}
