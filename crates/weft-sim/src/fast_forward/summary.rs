//! The result of fast-forward in a report.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{EqualParts, Grain, Refusal, Skip};

/// The skips of one grain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SkipCount {
    /// Number of skips.
    pub skips: u64,
    /// The time they added, microseconds.
    pub skipped_us: f64,
}

/// The time that a run skipped, and the reasons where it did not.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FastForwardReport {
    /// The threshold: maximum difference between durations of units, as a share of their mean.
    pub threshold: f64,
    /// The time that was skipped, microseconds of simulated time.
    pub skipped_us: f64,
    /// The skipped time times the spread of the units that each skip was measured on, microseconds: how far the end of
    /// the run may be off if a measured unit is off by its spread in every skip.
    pub uncertainty_us: f64,
    /// The skips by grain.
    pub skips: BTreeMap<&'static str, SkipCount>,
    /// Number of equal parts of the traffic for each one that was simulated; zero if no workload has any.
    pub equal_parts: u64,
    /// The payload that was neither sent nor delivered because its units were skipped or an equal part was simulated, bytes.
    pub skipped_bytes: u64,
    /// Number of skips refused, by reason.
    pub refused: BTreeMap<&'static str, u64>,
}

impl FastForwardReport {
    /// Counts a skip.
    pub fn count_skip(&mut self, grain: Grain, skip: &Skip) {
        let micros = skip.span.as_micros_f64();
        self.skipped_us += micros;
        self.uncertainty_us += micros * skip.spread;
        let of_grain = self.skips.entry(grain.name()).or_default();
        of_grain.skips += 1;
        of_grain.skipped_us += micros;
    }

    /// Adds the equal parts of a workload, or the reason why all of it was simulated.
    pub fn add_equal_parts(&mut self, found: Result<EqualParts, Refusal>) {
        match found {
            Ok(parts) => {
                self.equal_parts = self.equal_parts.max(parts.count);
                self.skipped_bytes += parts.bytes;
            }
            Err(refusal) => self.count_refusal(refusal),
        }
    }

    /// Counts a refusal.
    pub fn count_refusal(&mut self, refusal: Refusal) {
        *self.refused.entry(refusal.text()).or_default() += 1;
    }
}
