//! RDMA WRITEs as in bandwidth tests (perftest's `ib_write_bw`; STELLAR, figures 8 and 14): each connection carries
//! messages of one size, one after another, with a fixed number in flight.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_units::ByteCount;

use super::streams::{Plan, Streams};
use super::{
    Setting, Workload, WorkloadBuilder, WorkloadError, at_least_one, checked_pair, message_size,
};
use crate::time::SimTime;

/// The settings of the `writes` workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The source and destination of each pair.
    pub pairs: Vec<[u32; 2]>,
    /// Number of connections of each pair.
    pub connections: u32,
    /// Bytes of a message.
    pub size: ByteCount,
    /// Bytes of each connection, in whole messages, at least one.
    pub total: ByteCount,
    /// The largest number of messages in flight on a connection.
    pub depth: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            pairs: vec![[0, 1]],
            connections: 1,
            size: ByteCount::kib(64),
            total: ByteCount::mib(16),
            depth: 128,
        }
    }
}

impl WorkloadBuilder for Config {
    fn build(&self, setting: &Setting<'_>) -> Result<Box<dyn Workload>, WorkloadError> {
        let hosts = setting.topology.hosts();
        let pairs = self.pairs.iter().map(|&pair| checked_pair(pair, hosts));
        let messages = (self.total.0 / self.size.0.max(1)).max(1);
        Ok(Box::new(Streams::new(Plan {
            pairs: pairs.collect::<Result<_, _>>()?,
            connections: at_least_one("connections", self.connections)?,
            length: message_size("size", self.size)?,
            messages,
            depth: at_least_one("depth", self.depth)?,
            start: SimTime::EPOCH,
        })))
    }

    fn check(&self) -> Result<(), WorkloadError> {
        message_size("size", self.size)?;
        at_least_one("connections", self.connections)?;
        at_least_one("depth", self.depth)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weft_units::Seed;

    use crate::report::Report;
    use crate::scenario::Scenario;

    fn run(writes: &str) -> Result<Report, String> {
        let text = format!(
            "topology = {{ kind = \"leaf-spine\", leaves = 1, spines = 1, hosts_per_leaf = 2 }}\n\
             measure = {{ flows = true }}\n\
             [[workload]]\nkind = \"writes\"\n{writes}"
        );
        let scenario = Scenario::parse(&text, Path::new("")).map_err(|error| error.to_string())?;
        crate::run(&scenario, Seed(1)).map_err(|error| error.to_string())
    }

    #[test]
    fn each_connection_carries_its_total_in_messages_with_depth_in_flight() {
        let report = run("connections = 3\nsize = \"10KB\"\ntotal = \"95KB\"\ndepth = 2").unwrap();
        assert!(report.finished);
        assert_eq!(report.flows.len(), 3 * 9);
        let sent = |tag| report.flows.iter().filter(move |flow| flow.tag == tag);
        let first_end = sent(0).map(|flow| flow.acknowledged_us).fold(f64::MAX, f64::min);
        assert!(sent(1).all(|flow| flow.start_us == 0.0));
        assert!(sent(2).all(|flow| flow.start_us >= first_end));
    }

    #[test]
    fn invalid_settings_are_refused() {
        for (writes, want) in [
            ("depth = 0", "line 5: workload 1 (writes): depth is 0, expected at least 1"),
            ("size = \"0B\"", "line 5: workload 1 (writes): size is 0 bytes"),
            ("pairs = [[0, 9]]", "workload 1 (writes): host 9 does not exist; hosts are 0..2"),
        ] {
            let error = run(writes).unwrap_err();
            assert!(error.starts_with(want), "{error}");
        }
    }
}
