//! A flow from each host to another; each host receives one. The traffic that asks most of a
//! fabric's load balancing and least of its receivers (STELLAR, section 7.2; figure 9).

use serde::{Deserialize, Serialize};
use weft_units::{ByteCount, Duration};

use super::{Flows, HostSet, Recipe, Setting, Workload, WorkloadError, message_size};
use crate::time::{SimSpan, SimTime};

/// A permutation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Who takes part.
    pub hosts: HostSet,
    /// Bytes of each flow.
    pub size: ByteCount,
    /// When all flows start.
    pub start: Duration,
}

impl Default for Config {
    /// 2 MB, as in the permutations by which public simulators are compared.
    fn default() -> Self {
        Self { hosts: HostSet::all(), size: ByteCount(2_000_000), start: Duration::ZERO }
    }
}

impl Recipe for Config {
    fn build(&self, setting: &Setting<'_>) -> Result<Box<dyn Workload>, WorkloadError> {
        let hosts = self.hosts.resolve(setting.topology.hosts(), 2)?;
        let start = SimTime::EPOCH + SimSpan::from(self.start);
        let size = message_size("size", self.size)?;
        Ok(Box::new(Flows::permutation(hosts, size, start, setting.seed)))
    }
}
