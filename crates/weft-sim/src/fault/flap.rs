//! Cables go down and come back, again and again: a dirty connector, an optic about to fail.

use serde::{Deserialize, Serialize};
use weft_units::Duration;

use super::{Action, FaultError, LinkSelector, Plan, Scheduler, Window};

/// Cables flap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Which cables.
    pub links: LinkSelector,
    /// When they first go down.
    #[serde(default)]
    pub at: Duration,
    /// How long they are down each time.
    pub down: Duration,
    /// How long they are up in between.
    pub up: Duration,
    /// How often.
    pub times: u32,
}

impl Scheduler for Fault {
    fn schedule(&self, plan: &mut Plan<'_>) -> Result<(), FaultError> {
        let period = self.down.as_nanos().saturating_add(self.up.as_nanos());
        for link in plan.cables(&self.links, self.at)? {
            for turn in 0..u64::from(self.times) {
                let at = self.at.as_nanos().saturating_add(period.saturating_mul(turn));
                let window = Window { at: Duration::from_nanos(at), duration: Some(self.down) };
                plan.during(window, Action::LinkDown(link));
            }
        }
        Ok(())
    }
}
