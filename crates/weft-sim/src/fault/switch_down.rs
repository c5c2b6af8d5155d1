//! A switch goes down with all its cables.

use serde::{Deserialize, Serialize};
use weft_units::Duration;

use super::{Action, FaultError, Plan, Scheduler, Window};

/// A switch goes down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Its node number: switches follow the hosts.
    pub switch: u32,
    /// When it begins.
    #[serde(default)]
    pub at: Duration,
    /// How long it lasts; without it, to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
}

impl Scheduler for Fault {
    fn schedule(&self, plan: &mut Plan<'_>) -> Result<(), FaultError> {
        let switch = plan.check_node(self.switch, false)?;
        plan.during(Window { at: self.at, duration: self.duration }, Action::SwitchDown(switch));
        Ok(())
    }
}
