//! The failure of a switch with all its cables.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_units::Duration;

use super::{Action, FaultError, Plan, Scheduler, Window};

/// A failure of a switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The node number of the switch: switches follow the hosts.
    pub switch: u32,
    /// Start of the fault.
    #[serde(default)]
    pub at: Duration,
    /// Duration of the fault; by default, to the end.
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
