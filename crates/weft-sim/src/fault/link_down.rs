//! Cables that go down, for a while or for good. Packets on them or queued for them are lost; routes change only when
//! the control plane reacts (`[run] reroute_after`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_units::Duration;

use super::{Action, FaultError, LinkSelector, Plan, Scheduler, Window};

/// A failure of cables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The cables.
    pub links: LinkSelector,
    /// Start of the fault.
    #[serde(default)]
    pub at: Duration,
    /// Duration of the fault; by default, to the end.
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
