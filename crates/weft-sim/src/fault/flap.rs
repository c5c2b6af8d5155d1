//! Cables that go down and come up repeatedly, as with a dirty connector or a failing optic.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_units::Duration;

use super::{Action, FaultError, LinkSelector, Plan, Scheduler, Window};

/// Flapping cables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The cables.
    pub links: LinkSelector,
    /// The time at which they first go down.
    #[serde(default)]
    pub at: Duration,
    /// Duration of each down time.
    pub down: Duration,
    /// Duration of each up time between.
    pub up: Duration,
    /// Number of down times.
    pub times: u32,
}

impl Scheduler for Fault {
    fn schedule(&self, plan: &mut Plan<'_>) -> Result<(), FaultError> {
        let period = self.down.as_nanos().saturating_add(self.up.as_nanos());
        for link in plan.cables(&self.links, self.at)? {
            for cycle in 0..u64::from(self.times) {
                let at = self.at.as_nanos().saturating_add(period.saturating_mul(cycle));
                let window = Window { at: Duration::from_nanos(at), duration: Some(self.down) };
                plan.during(window, Action::LinkDown(link));
            }
        }
        Ok(())
    }
}
