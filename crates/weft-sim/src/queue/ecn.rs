//! Drop-tail that marks packets between two depths: RED's slope on the queue as it is, not its
//! average (DCQCN, section 5), and with both depths equal DCTCP's step (RFC 8257, section 3.1).

use weft_units::Rng;

use super::{Admission, QueueDiscipline, Thresholds};
use crate::time::SimSpan;

/// Marks packets by queue depth and refuses packets that do not fit.
#[derive(Clone, Debug)]
pub struct Discipline {
    thresholds: Thresholds,
}

impl Discipline {
    pub(super) fn new(thresholds: Thresholds) -> Self {
        Self { thresholds }
    }

    /// Draws whether a packet is marked whose backlog is between the two depths.
    fn draw_mark(&self, backlog: SimSpan, rng: &mut Rng) -> bool {
        let Thresholds { ecn_min, ecn_max, ecn_probability, .. } = self.thresholds;
        let depth = backlog.as_picos() - ecn_min.as_picos();
        let slope = (ecn_max.as_picos() - ecn_min.as_picos()).max(1);
        let chance = u128::from(ecn_probability) * u128::from(depth) / u128::from(slope);
        u128::from(rng.next_u32()) < chance
    }
}

impl QueueDiscipline for Discipline {
    #[inline]
    fn admit(&self, backlog: SimSpan, packet: SimSpan, rng: &mut Rng) -> Admission {
        if backlog + packet > self.thresholds.limit {
            Admission::Refuse
        } else if backlog <= self.thresholds.ecn_min {
            Admission::Accept
        } else if backlog > self.thresholds.ecn_max || self.draw_mark(backlog, rng) {
            Admission::Mark
        } else {
            Admission::Accept
        }
    }

    fn accepts_up_to(&self) -> SimSpan {
        self.thresholds.ecn_min.min(self.thresholds.limit)
    }
}
