//! Round robin (STELLAR, section 7.2): every open path in turn. It is perfectly even, and perfectly regular, so that
//! the senders of a collective can stay in step with each other.

use weft_units::{Instant, Rng};

use super::{Candidates, Feedback, PathId, PathPolicy, Paths};
use crate::TransportConfig;

/// The policy: selects the next open path, from a random start.
#[derive(Debug)]
pub struct Policy {
    next: Option<PathId>,
}

impl Policy {
    pub(super) fn new(_config: &TransportConfig) -> Self {
        Self { next: None }
    }
}

impl PathPolicy for Policy {
    #[inline]
    fn select(&mut self, paths: &Candidates<'_>, _now: Instant, rng: &mut Rng) -> Option<PathId> {
        let start = self.next.unwrap_or_else(|| paths.draw(rng));
        let path = paths.open_from(start)?;
        self.next = Some(paths.after(path));
        Some(path)
    }

    fn on_feedback(&mut self, _path: PathId, _feedback: Feedback, _paths: &Paths, _now: Instant) {}
}
