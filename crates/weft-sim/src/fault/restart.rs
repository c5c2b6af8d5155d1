//! A host's engine restarts: every connection it had is forgotten, and its peers find out.

use serde::{Deserialize, Serialize};
use weft_units::Duration;

use super::{Action, FaultError, Plan, Scheduler};

/// A host restarts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Which host.
    pub host: u32,
    /// When.
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
