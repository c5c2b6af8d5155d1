//! Several connections between chosen hosts, each with one flow (STELLAR, section 7.2: two NICs and 16 connections;
//! figure 12).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_units::{ByteCount, Duration};

use super::{
    Flow, Flows, Setting, Workload, WorkloadBuilder, WorkloadError, at_least_one, checked_pair,
    message_size,
};
use crate::time::{SimSpan, SimTime};

/// The settings of the `pairs` workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The source and destination of each pair.
    pub pairs: Vec<[u32; 2]>,
    /// Number of connections of each pair.
    pub connections: u32,
    /// Bytes each connection carries.
    pub size: ByteCount,
    /// The start of all flows, from the start of the run.
    pub start: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            pairs: vec![[0, 1]],
            connections: 1,
            size: ByteCount(2_000_000),
            start: Duration::ZERO,
        }
    }
}

impl WorkloadBuilder for Config {
    fn build(&self, setting: &Setting<'_>) -> Result<Box<dyn Workload>, WorkloadError> {
        let hosts = setting.topology.hosts();
        let length = message_size("size", self.size)?;
        let start = SimTime::EPOCH + SimSpan::from(self.start);
        let connections = at_least_one("connections", self.connections)?;
        let mut flows = Vec::new();
        for &pair in &self.pairs {
            let (source, destination) = checked_pair(pair, hosts)?;
            let flow = Flow { source, destination, length, start };
            flows.extend((0..connections).map(|_| flow));
        }
        Ok(Box::new(Flows::new(flows)))
    }
}
