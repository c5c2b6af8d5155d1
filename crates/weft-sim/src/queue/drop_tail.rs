//! First in, first out, until the queue is full.

use weft_units::Rng;

use super::{Admission, QueueDiscipline, Thresholds};
use crate::time::SimSpan;

/// Refuses packets that do not fit.
#[derive(Clone, Debug)]
pub struct Discipline {
    limit: SimSpan,
}

impl Discipline {
    pub(super) fn new(thresholds: Thresholds) -> Self {
        Self { limit: thresholds.limit }
    }
}

impl QueueDiscipline for Discipline {
    #[inline]
    fn admit(&self, backlog: SimSpan, packet: SimSpan, _rng: &mut Rng) -> Admission {
        if backlog + packet > self.limit { Admission::Refuse } else { Admission::Accept }
    }

    fn accepts_up_to(&self) -> SimSpan {
        self.limit
    }
}
