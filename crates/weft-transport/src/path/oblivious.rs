//! Oblivious packet spraying (STELLAR, section 7.2): a uniformly random path for each unit. It keeps no state at all,
//! which is why STELLAR chose it for hardware.

use weft_units::{Instant, Rng, prefetch};

use super::{Candidates, Feedback, PathId, PathPolicy, Paths};
use crate::TransportConfig;

/// The policy: draws a path for every unit.
#[derive(Debug)]
pub struct Policy;

impl Policy {
    pub(super) fn new(_config: &TransportConfig) -> Self {
        Self
    }
}

impl PathPolicy for Policy {
    #[inline]
    fn select(&mut self, paths: &Candidates<'_>, _now: Instant, rng: &mut Rng) -> Option<PathId> {
        let path = paths.draw(rng);
        // The next packet's path is in no cache either.
        prefetch(paths.state(paths.draw(&mut rng.clone())));
        paths.open_from(path)
    }

    fn on_feedback(&mut self, _path: PathId, _feedback: Feedback, _paths: &Paths, _now: Instant) {}
}
