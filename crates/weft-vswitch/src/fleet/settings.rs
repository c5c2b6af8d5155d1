//! The table `[fleet]` of a host's file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_etcd::EtcdSettings;
use weft_units::Duration;

use super::key::is_name;
use crate::config::{ConfigError, value};

/// The fleet that this host belongs to: its networks, ports and peers come from etcd, beside those of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FleetSettings {
    /// The name of this host, which no other host has.
    pub name: String,
    /// etcd's members and the TLS files.
    pub etcd: EtcdSettings,
    /// The first part of all keys.
    #[serde(default = "default_prefix")]
    pub prefix: String,
    /// The time after which a host that is silent counts as dead, whole seconds.
    #[serde(default = "default_lease")]
    pub lease: Duration,
    /// `true` to accept only hosts whose public keys are in etcd. This host's own key is put there when it registers, and
    /// must be in a file: `identity` in `[host.encryption]`.
    #[serde(default)]
    pub identities: bool,
}

fn default_prefix() -> String {
    "/weft".into()
}

const fn default_lease() -> Duration {
    Duration::from_secs(10)
}

impl FleetSettings {
    /// Returns the settings of a host, with defaults.
    pub fn new(name: &str, etcd: EtcdSettings) -> Self {
        let (prefix, lease) = (default_prefix(), default_lease());
        Self { name: name.to_owned(), etcd, prefix, lease, identities: false }
    }

    /// Checks every value.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !is_name(&self.name) {
            let expected = "1 to 63 letters, digits, dots, hyphens and underscores";
            return Err(value("fleet.name", &self.name, expected));
        }
        if !self.prefix.starts_with('/') || self.prefix.ends_with('/') {
            return Err(value(
                "fleet.prefix",
                &self.prefix,
                "/weft, or another with / only before",
            ));
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&self.lease) {
            return Err(value("fleet.lease", self.lease, "1s to 3600s"));
        }
        self.etcd.check().map_err(|error| value("fleet.etcd", "refused", error.to_string()))
    }
}
