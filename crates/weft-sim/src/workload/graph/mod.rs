//! Runs a graph of messages, computation and collectives that a file describes: a Chakra execution trace, a GOAL
//! schedule, a workload of SimAI, or a connection matrix of htsim with triggers.
//!
//! The file's reader makes the [`Graph`](crate::graph::Graph), so that all formats have one execution (`job.rs`). A send
//! is done when it is acknowledged, a receive when its message has arrived, and a collective when its rank has performed
//! its part of the planner's schedule. Ranks compute for the time that the file gives. Packets on the wire are those of
//! the transport, with its own congestion control and paths: no rate or latency of the file's own simulator is used.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_units::{ByteCount, Duration};

use super::{
    Connections, HostSet, ServerConfig, Setting, Workload, WorkloadBuilder, WorkloadError,
};
use crate::import::{self, Format, Options, Roofline, StartUnit};
use crate::memory::available_bytes;
use crate::time::{SimSpan, SimTime};

mod collectives;
mod job;
mod ranks;
mod tag;

pub use collectives::AllReduce;
use collectives::Collectives;
use job::Job;
use ranks::Ranks;

/// The settings of the `graph` workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The file, relative to the scenario's folder; of a Chakra trace, any rank's.
    pub file: PathBuf,
    /// The file's format; without it, the format is recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// The hosts of the ranks, in their order.
    #[serde(default = "HostSet::all")]
    pub hosts: HostSet,
    /// The GPUs and links of a server. Without it every rank has a host, and all messages take the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerConfig>,
    /// The messages that share a connection; without it, those of a pair of hosts, and in a connection matrix of htsim
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<Connections>,
    /// The algorithm of all-reduces larger than `small`.
    #[serde(default)]
    pub all_reduce: AllReduce,
    /// The largest collective, bytes, for which the schedule with the fewest rounds is used.
    #[serde(default)]
    pub small: ByteCount,
    /// The unit of `start` in a connection matrix of htsim.
    #[serde(default)]
    pub start_unit: StartUnit,
    /// The GPU for which times of a Chakra trace are computed; without it they are the recorded ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roofline: Option<Roofline>,
    /// Number of ranks, for a workload of SimAI or ASTRA-sim that does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// The start of the graph, from the start of the run.
    #[serde(default)]
    pub start: Duration,
}

impl Config {
    /// Returns the settings that run a file with every default.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            format: None,
            hosts: HostSet::all(),
            server: None,
            connections: None,
            all_reduce: AllReduce::default(),
            small: ByteCount(0),
            start_unit: StartUnit::default(),
            roofline: None,
            ranks: None,
            start: Duration::ZERO,
        }
    }

    /// Returns the settings of the file's reader.
    pub fn options(&self) -> Options {
        let memory = available_bytes().unwrap_or(u64::MAX);
        Options { start_unit: self.start_unit, roofline: self.roofline, ranks: self.ranks, memory }
    }
}

impl WorkloadBuilder for Config {
    fn build(&self, setting: &Setting<'_>) -> Result<Box<dyn Workload>, WorkloadError> {
        self.check()?;
        let file = setting.folder.join(&self.file);
        let import = import::graph(&file, self.format, &self.options())?;
        let graph = import.graph;
        if graph.operations().len() > tag::MAX_OPERATIONS {
            let (key, got) = ("file", format!("{} collectives", graph.operations().len()));
            return Err(WorkloadError::OutOfRange { key, got, expected: "at most 2^29" });
        }
        let hosts = self.hosts.resolve(setting.topology.hosts(), 1)?;
        let ranks = Ranks::new(graph.ranks(), &hosts, self.server.clone())?;
        let connections = self.connections.unwrap_or(match import.summary.format {
            Format::Htsim => Connections::PerFlow,
            _ => Connections::PerPair,
        });
        let collectives = Collectives::new(self.all_reduce, self.small.0);
        let start = SimTime::EPOCH + SimSpan::from(self.start);
        Ok(Box::new(Job::new(graph, ranks, connections, start, collectives)))
    }

    fn check(&self) -> Result<(), WorkloadError> {
        self.server.as_ref().map_or(Ok(()), ServerConfig::check)?;
        self.roofline.map_or(Ok(()), |roofline| {
            roofline.check().map_err(|(key, got)| WorkloadError::OutOfRange {
                key,
                got: got.to_string(),
                expected: "a number above zero",
            })
        })
    }
}

#[cfg(test)]
mod tests;
