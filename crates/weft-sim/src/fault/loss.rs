//! Random loss of packets on some links after sending (STELLAR, section 7.2: 1 % and 3 % on a single link).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_units::Duration;

use super::{Action, Change, FaultError, LinkSelector, Plan, Scheduler, Window, probability};

/// Loss of packets for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The links.
    pub links: LinkSelector,
    /// Share of packets, 0 to 1.
    pub probability: f64,
    /// Start of the fault.
    #[serde(default)]
    pub at: Duration,
    /// Duration of the fault; by default, to the end.
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
