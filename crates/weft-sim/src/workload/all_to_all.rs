//! Every host sends to every other, all at once. Each sender starts with another receiver, as
//! collective libraries do, so that nobody is everybody's first.

use serde::{Deserialize, Serialize};
use weft_units::{ByteCount, Duration};

use super::{Flow, Flows, HostSet, Recipe, Setting, Workload, WorkloadError, message_size};
use crate::time::{SimSpan, SimTime};

/// An all-to-all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Who takes part.
    pub hosts: HostSet,
    /// Bytes from each host to each other.
    pub size: ByteCount,
    /// When it starts.
    pub start: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { hosts: HostSet::all(), size: ByteCount(64_000), start: Duration::ZERO }
    }
}

impl Recipe for Config {
    fn build(&self, setting: &Setting<'_>) -> Result<Box<dyn Workload>, WorkloadError> {
        let hosts = self.hosts.resolve(setting.topology.hosts(), 2)?;
        let length = message_size("size", self.size)?;
        let start = SimTime::EPOCH + SimSpan::from(self.start);
        let mut flows = Vec::with_capacity(hosts.len() * (hosts.len() - 1));
        for distance in 1..hosts.len() {
            for (index, &source) in hosts.iter().enumerate() {
                let destination = hosts[(index + distance) % hosts.len()];
                flows.push(Flow { source, destination, length, start });
            }
        }
        Ok(Box::new(Flows::new(flows)))
    }
}
