//! The table `[flow-log]` of a host's file.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_units::Duration;

use crate::config::{ConfigError, value};

/// The flow logs of this host's ports, as IPFIX to a collector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FlowLogSettings {
    /// The collector's address and UDP port.
    pub collector: SocketAddr,
    /// The time over which a record sums a flow's frames.
    #[serde(default = "default_interval")]
    pub interval: Duration,
    /// Largest number of flows of a port in an interval, some 120 bytes each; frames of further ones are counted only.
    #[serde(default = "default_max_flows")]
    pub max_flows: usize,
}

const fn default_interval() -> Duration {
    Duration::from_secs(60)
}

const fn default_max_flows() -> usize {
    65_536
}

impl FlowLogSettings {
    /// Checks every value.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.collector.port() == 0 || self.collector.ip().is_unspecified() {
            let expected = "the address and port of a host that collects IPFIX";
            return Err(value("flow-log.collector", self.collector, expected));
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&self.interval) {
            return Err(value("flow-log.interval", self.interval, "1s to 3600s"));
        }
        if !(1..=1 << 20).contains(&self.max_flows) {
            return Err(value("flow-log.max-flows", self.max_flows, "1 to 1048576"));
        }
        Ok(())
    }
}
