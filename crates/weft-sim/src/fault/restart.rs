//! A restart of a host's engine: it forgets every connection, and its peers detect that.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_units::Duration;

use super::{Action, FaultError, Plan, Scheduler};

/// A restart of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The host's number.
    pub host: u32,
    /// The time.
    #[serde(default)]
    pub at: Duration,
}

impl Scheduler for Fault {
    fn schedule(&self, plan: &mut Plan<'_>) -> Result<(), FaultError> {
        let host = plan.check_node(self.host, true)?;
        plan.at(self.at, Action::Restart(host));
        Ok(())
    }
}
