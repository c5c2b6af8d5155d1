//! The transport of a scenario: a profile, its overrides, and the defaults that follow from the network.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};
use weft_topo::{NodeId, Topology};
use weft_transport::{ConfigError, Profile, TransportConfig};
use weft_units::BitRate;

use super::ScenarioError;
use crate::world::base_round_trip;

/// A profile and its overrides: any key of [`TransportConfig`]. Without `line_rate` and `base_rtt`, they are those of
/// the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct TransportSection {
    /// The profile.
    pub profile: Profile,
    /// The settings that differ from the profile.
    #[serde(flatten)]
    #[schemars(with = "TransportConfig")]
    pub overrides: Table,
}

impl Default for TransportSection {
    fn default() -> Self {
        Self { profile: Profile::Stellar, overrides: Table::new() }
    }
}

const LINE_RATE: &str = "line_rate";
const BASE_RTT: &str = "base_rtt";

/// The error of an invalid section `[transport]`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TransportSectionError {
    /// A key does not exist, or has a value of the wrong type.
    #[error("{}", .0.message())]
    Syntax(#[from] toml::de::Error),
    /// A value is out of its range.
    #[error(transparent)]
    Range(#[from] ConfigError),
}

impl TransportSection {
    /// Checks the settings that do not depend on the network.
    ///
    /// # Errors
    /// A key does not exist or has a value of the wrong type, or a value is out of its range.
    pub(super) fn check(&self) -> Result<(), TransportSectionError> {
        Ok(self.merged()?.validate()?)
    }

    /// Returns the transport's configuration in this network.
    ///
    /// # Errors
    /// A field is out of its range.
    pub fn resolve(&self, topology: &Topology) -> Result<TransportConfig, ScenarioError> {
        let wrong = |message: &dyn std::fmt::Display| {
            ScenarioError::new(format_args!("[transport]: {message}"))
        };
        let mut config = self.merged().map_err(|error| wrong(&error.message()))?;
        if !self.overrides.contains_key(LINE_RATE) {
            config.line_rate = line_rate(topology);
        }
        if !self.overrides.contains_key(BASE_RTT) {
            config.base_rtt = base_round_trip(topology, &config).unwrap_or(config.base_rtt);
        }
        config.validate().map_err(|error| wrong(&error))?;
        Ok(config)
    }

    /// Returns the same section with every key written out.
    pub(super) fn expanded(&self, topology: &Topology) -> Self {
        let config = self.resolve(topology).or_else(|_| self.merged()).ok();
        let all = config.and_then(|config| Table::try_from(config).ok());
        Self { profile: self.profile, overrides: all.unwrap_or_else(|| self.overrides.clone()) }
    }

    fn merged(&self) -> Result<TransportConfig, toml::de::Error> {
        let mut all = Table::try_from(self.profile.config()).expect("a configuration is a table");
        merge(&mut all, &self.overrides);
        all.try_into()
    }
}

/// Merges `overrides` into `base`, tables key by key.
pub(super) fn merge(base: &mut Table, overrides: &Table) {
    for (key, value) in overrides {
        match (base.get_mut(key), value) {
            (Some(Value::Table(old)), Value::Table(new)) => merge(old, new),
            _ => {
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Returns the rate of a host's ports together; the first host represents all.
fn line_rate(topology: &Topology) -> BitRate {
    let ports = topology.ports(NodeId(0)).iter();
    let sum = ports.map(|&port| topology.link(port).rate.as_bps()).fold(0, u64::saturating_add);
    BitRate::bps(sum).expect("a host has a port, and no rate is zero")
}
