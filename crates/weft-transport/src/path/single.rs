//! One path for the connection's life, as a RoCE queue pair gets from ECMP today.

use weft_units::{Instant, Rng};

use super::current::Current;
use super::{Candidates, Feedback, PathId, PathPolicy, Paths};
use crate::TransportConfig;

/// The policy: keeps the path drawn first until it goes down.
#[derive(Debug)]
pub struct Policy {
    current: Current,
}

impl Policy {
    pub(super) fn new(_config: &TransportConfig) -> Self {
        Self { current: Current::default() }
    }
}

impl PathPolicy for Policy {
    fn select(&mut self, paths: &Candidates<'_>, _now: Instant, rng: &mut Rng) -> Option<PathId> {
        self.current.select(paths, rng)
    }

    fn on_feedback(&mut self, _path: PathId, _feedback: Feedback, _paths: &Paths, _now: Instant) {}
}
