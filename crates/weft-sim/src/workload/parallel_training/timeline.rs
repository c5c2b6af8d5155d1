//! The times of a first lane that uses no network: they are known when an iteration begins.

use crate::time::{SimSpan, SimTime};

/// The times at which the first lane sets its records in the current iteration.
#[derive(Debug)]
pub(super) struct Timeline {
    /// By place in a tensor-parallel group and record; far in the future until it is known.
    records: Vec<Vec<SimTime>>,
}

impl Timeline {
    /// Returns a timeline whose times are not known yet.
    pub(super) fn new(places: u32, records: usize) -> Self {
        Self { records: vec![vec![SimTime::FAR_FUTURE; records]; places as usize] }
    }

    /// Notes the time of a record of one place.
    pub(super) fn set(&mut self, place: u32, record: usize, at: SimTime) {
        self.records[place as usize][record] = at;
    }

    /// Returns the time of a record of one place.
    pub(super) fn at(&self, place: u32, record: usize) -> SimTime {
        self.records[place as usize][record]
    }

    /// Moves all times by the span of skipped iterations.
    pub(super) fn shift(&mut self, span: SimSpan) {
        self.records.iter_mut().flatten().for_each(|at| *at += span);
    }
}
