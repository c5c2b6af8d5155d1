//! The operations of a program.

use crate::time::SimSpan;

/// Number of lanes: computation, reduction, gathering.
pub(super) const LANES: usize = 3;

/// A rank's operation in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Computes for this time.
    Compute(SimSpan),
    /// Takes part in an exchange, given by its index in the plan.
    Exchange(usize),
    /// Sets a record that other lanes can wait for.
    Record(usize),
    /// Waits until another lane has set a record.
    Await(usize),
}
