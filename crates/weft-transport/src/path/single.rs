//! One path for the connection's life: what a RoCE queue pair gets from ECMP today.

use weft_units::{Instant, Rng};

use super::{Feedback, PathId, PathPolicy, Paths};
use crate::TransportConfig;

/// Keeps the path drawn first until it goes down.
#[derive(Debug)]
pub struct Policy {
    current: Option<PathId>,
}

impl Policy {
    pub(super) fn new(_config: &TransportConfig) -> Self {
        Self { current: None }
    }
}

impl PathPolicy for Policy {
    fn select(&mut self, paths: &Paths, _now: Instant, rng: &mut Rng) -> Option<PathId> {
        match self.current {
            Some(path) if paths.is_up(path) => paths.is_open(path).then_some(path),
            _ => {
                self.current = paths.open_from(paths.draw(rng));
                self.current
            }
        }
    }

    fn on_feedback(&mut self, _path: PathId, _feedback: Feedback, _paths: &Paths, _now: Instant) {}
}
