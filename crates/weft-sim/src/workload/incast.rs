//! Many hosts send to one at the same time.

use serde::{Deserialize, Serialize};
use weft_topo::NodeId;
use weft_units::{ByteCount, Duration};

use super::{Flow, Flows, HostSet, Recipe, Setting, Workload, WorkloadError, message_size};
use crate::time::{SimSpan, SimTime};

/// An incast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Who receives.
    pub receiver: u32,
    /// Who sends; the receiver is left out.
    pub senders: HostSet,
    /// Bytes each sender sends.
    pub size: ByteCount,
    /// When they all start.
    pub start: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            receiver: 0,
            senders: HostSet::all(),
            size: ByteCount(1_000_000),
            start: Duration::ZERO,
        }
    }
}

impl Recipe for Config {
    fn build(&self, setting: &Setting<'_>) -> Result<Box<dyn Workload>, WorkloadError> {
        let hosts = setting.topology.hosts();
        if self.receiver >= hosts {
            return Err(WorkloadError::NoSuchHost { got: self.receiver, hosts });
        }
        let destination = NodeId(self.receiver);
        let length = message_size("size", self.size)?;
        let start = SimTime::EPOCH + SimSpan::from(self.start);
        let senders = self.senders.resolve(hosts, 1)?;
        let others = senders.into_iter().filter(|&host| host != destination);
        let flow = |source| Flow { source, destination, length, start };
        Ok(Box::new(Flows::new(others.map(flow).collect())))
    }
}
