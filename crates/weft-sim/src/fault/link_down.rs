//! Cables go down, for a while or for good. What is on them or queued for them is lost; routes stay
//! as they were until the control plane reacts (`[run] reroute_after`).

use serde::{Deserialize, Serialize};
use weft_units::Duration;

use super::{Action, FaultError, LinkSelector, Plan, Scheduler, Window};

/// Cables go down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Which cables.
    pub links: LinkSelector,
    /// When it begins.
    #[serde(default)]
    pub at: Duration,
    /// How long it lasts; without it, to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
}

impl Scheduler for Fault {
    fn schedule(&self, plan: &mut Plan<'_>) -> Result<(), FaultError> {
        for link in plan.cables(&self.links, self.at)? {
            plan.during(Window { at: self.at, duration: self.duration }, Action::LinkDown(link));
        }
        Ok(())
    }
}
