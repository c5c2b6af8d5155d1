//! Packets on some links are lost by chance, after they were sent (STELLAR, section 7.2: 1 % and
//! 3 % on a single link).

use serde::{Deserialize, Serialize};
use weft_units::Duration;

use super::{Action, Change, FaultError, LinkSelector, Plan, Scheduler, Window, probability};

/// Packets are lost for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// On which links.
    pub links: LinkSelector,
    /// Share of packets, 0 to 1.
    pub probability: f64,
    /// When it begins.
    #[serde(default)]
    pub at: Duration,
    /// How long it lasts; without it, to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
}

impl Scheduler for Fault {
    fn schedule(&self, plan: &mut Plan<'_>) -> Result<(), FaultError> {
        let change = Change::Loss(probability(self.probability)?);
        for link in plan.directions(&self.links, self.at)? {
            plan.during(
                Window { at: self.at, duration: self.duration },
                Action::Impair { link, change },
            );
        }
        Ok(())
    }
}
