//! Fast-forward: a periodic state of the traffic is recognised, whole periods of it are skipped, and the run resumes.
//!
//! Workloads count units (steps of a ring, layers, micro-batches, iterations) and keep the [`Pace`] of each kind. When a
//! pace is steady they offer [`Cycle`]s; [`plan`] chooses a span and the number of units of every cycle that pass in it.
//! The world then adds the span to the skipped time, and each workload advances by its units. Packets in flight,
//! queues, engines and their timers stay as they are, so that an engine never observes a gap.
//!
//! The method is that of Wormhole (arXiv 2602.10615, sections 4 and 5) with units in the place of bytes. Of parts whose flows
//! have [equal routes](are_equal) over links of their own, only the first is simulated: its times are those of all.

mod equal_parts;
mod pace;
mod plan;
mod summary;

use std::fmt;

pub use equal_parts::{Pairs, are_equal};
pub use pace::{INTERVALS, Pace, SETTLING_INTERVALS};
pub use plan::{Advance, Cycle, Skip, plan};
pub use summary::{FastForwardReport, SkipCount};

use crate::time::SimTime;

/// The default threshold: that of Wormhole (section 5).
pub const DEFAULT_THRESHOLD: f64 = 0.05;

/// The size of the units that a workload is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grain {
    /// Whole iterations of a training job or of a collective.
    Iteration,
    /// The largest unit within an iteration that is steady: layers, collectives.
    Phase,
    /// Steps of a collective.
    Step,
}

impl Grain {
    /// Every grain, the largest first.
    pub const ALL: [Self; 3] = [Self::Iteration, Self::Phase, Self::Step];

    /// Returns the grain's name in a report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iteration => "iteration",
            Self::Phase => "phase",
            Self::Step => "step",
        }
    }
}

/// The conditions under which a pace counts as steady.
#[derive(Clone, Copy, Debug)]
pub struct Criterion {
    /// Maximum difference between durations of units, as a share of their mean.
    pub threshold: f64,
    /// The time since which the network and its routes are unchanged: units completed earlier do not count.
    pub unchanged_since: SimTime,
}

/// The reason why nothing is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The workload has no units that repeat.
    NoUnits,
    /// Too few units have been completed since the state last changed.
    TooFewUnits,
    /// Durations of units differ by more than the threshold.
    NotSteady,
    /// The ranks are in different operations, or the current one does not repeat.
    NotRepeating,
    /// Less than one unit is left before the next different operation or interruption.
    NothingLeft,
    /// A fault, or the end of the run, is less than one unit away.
    Interrupted,
    /// A route controller measures and moves flows.
    Controller,
    /// The packets of hosts are captured.
    Capture,
    /// Parts of a workload that do the same share links, or their routes differ; or there is only one.
    NoEqualParts,
    /// Parts that do the same wait for each other again and again: the slowest of several takes longer than one.
    PartsWait,
    /// Another workload, a fault, a controller or an observer may distinguish equal parts of a workload.
    NotAlone,
}

/// The parts of a workload that behave alike, of which one is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EqualParts {
    /// Number of parts.
    pub count: u64,
    /// The payload that the other parts would have sent while the first one did, bytes.
    pub bytes: u64,
}

impl Refusal {
    /// Returns the reason's text in a report.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NoUnits => "a workload has no repeating units",
            Self::TooFewUnits => "too few units completed since the state changed",
            Self::NotSteady => "durations of units differ by more than the threshold",
            Self::NotRepeating => "ranks are in operations that do not repeat",
            Self::NothingLeft => "less than one unit is left to skip",
            Self::Interrupted => "a fault or the end of the run is less than one unit away",
            Self::Controller => "a route controller measures the network",
            Self::Capture => "packets are captured",
            Self::NoEqualParts => {
                "no parts of a workload have equal routes over links of their own"
            }
            Self::PartsWait => "equal parts of a workload wait for the slowest of them",
            Self::NotAlone => "other traffic, a fault or an observer may distinguish equal parts",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.text())
    }
}

#[cfg(test)]
mod tests;
