//! A flow from each host to another; each host receives one. This traffic loads a fabric's load balancing most and its
//! receivers least (STELLAR, section 7.2; figure 9).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_units::{ByteCount, Duration};

use super::{Flows, HostSet, Setting, Workload, WorkloadBuilder, WorkloadError, message_size};
use crate::time::{SimSpan, SimTime};

/// The settings of the `permutation` workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The hosts that take part.
    pub hosts: HostSet,
    /// Bytes of each flow.
    pub size: ByteCount,
    /// The start of all flows, from the start of the run.
    pub start: Duration,
}

impl Default for Config {
    /// Returns flows of 2 MB, as in the permutations that compare public simulators.
    fn default() -> Self {
        Self { hosts: HostSet::all(), size: ByteCount(2_000_000), start: Duration::ZERO }
    }
}

impl WorkloadBuilder for Config {
    fn build(&self, setting: &Setting<'_>) -> Result<Box<dyn Workload>, WorkloadError> {
        let hosts = self.hosts.resolve(setting.topology.hosts(), 2)?;
        let start = SimTime::EPOCH + SimSpan::from(self.start);
        let size = message_size("size", self.size)?;
        Ok(Box::new(Flows::permutation(hosts, size, start, setting.seed)))
    }
}
