//! An incast: many hosts send to one host at the same time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::NodeId;
use weft_units::{ByteCount, Duration};

use super::streams::{Plan, Streams};
use super::{
    Flow, Flows, HostSet, Setting, Workload, WorkloadBuilder, WorkloadError, at_least_one,
    message_size,
};
use crate::time::{SimSpan, SimTime};

/// The settings of the `incast` workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The host that receives.
    pub receiver: u32,
    /// The hosts that send; the receiver is left out.
    pub senders: HostSet,
    /// Number of connections of each sender.
    pub connections: u32,
    /// Bytes of a message.
    pub size: ByteCount,
    /// Number of messages of each connection, one after the other.
    pub messages: u32,
    /// The start of all senders, from the start of the run.
    pub start: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            receiver: 0,
            senders: HostSet::all(),
            connections: 1,
            size: ByteCount(1_000_000),
            messages: 1,
            start: Duration::ZERO,
        }
    }
}

impl WorkloadBuilder for Config {
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
        let connections = at_least_one("connections", self.connections)?;
        if self.messages > 1 {
            let pairs = others.map(|source| (source, destination)).collect();
            let messages = self.messages.into();
            let plan = Plan { pairs, connections, length, messages, depth: 1, start };
            return Ok(Box::new(Streams::new(plan)));
        }
        let flow = |source| Flow { source, destination, length, start };
        let flows = others.flat_map(|source| (0..connections).map(move |_| flow(source)));
        Ok(Box::new(Flows::new(flows.collect())))
    }

    fn check(&self) -> Result<(), WorkloadError> {
        at_least_one("connections", self.connections)?;
        at_least_one("messages", self.messages)?;
        Ok(())
    }
}
