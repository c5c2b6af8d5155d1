//! The controllers that share a store: one leads, the others stand by.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_etcd::EtcdSettings;
use weft_units::Duration;

use crate::{ConfigError, GnmiSettingsError, Inventory, InventoryError, Method};

/// Several controllers of a fabric that keep their decisions in etcd. One leads; another one takes over when it ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// The members of etcd, and how they are reached.
    pub etcd: EtcdSettings,
    /// The fabric's name: its controllers have the same, and those of other fabrics in the same etcd have others.
    #[serde(default = "default_name")]
    pub name: String,
    /// The time after which a leader that does not answer is replaced, in whole seconds. etcd grants no less than 2s.
    #[serde(default = "default_ttl")]
    pub ttl: Duration,
    /// The URL of this controller's page for clients that other controllers send to it; by default the address of the page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

fn default_name() -> String {
    "fabric".into()
}

const fn default_ttl() -> Duration {
    Duration::from_secs(2)
}

impl ClusterConfig {
    /// Returns the cluster whose controllers keep their decisions in these members of etcd.
    pub fn of(etcd: EtcdSettings) -> Self {
        Self { etcd, name: default_name(), ttl: default_ttl(), url: None }
    }

    /// Checks the values.
    ///
    /// # Errors
    /// Returns the key and its fault.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.etcd.check().map_err(|error| ConfigError::Etcd(error.to_string()))?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(plain) {
            return Err(ConfigError::ClusterName(self.name.clone()));
        }
        let second = Duration::from_secs(1).as_nanos();
        let seconds = self.ttl.as_nanos() / second;
        if !(2..=60).contains(&seconds) || !self.ttl.as_nanos().is_multiple_of(second) {
            return Err(ConfigError::ClusterTtl(self.ttl));
        }
        if let Some(url) = self.url.as_ref().filter(|url| !is_page(url)) {
            return Err(ConfigError::ClusterUrl(url.clone()));
        }
        Ok(())
    }

    /// Checks that every router refuses a leader whose term is over: one with a shell does so by itself.
    ///
    /// # Errors
    /// Returns the first router that does not.
    pub(crate) fn check_inventory(&self, inventory: &Inventory) -> Result<(), InventoryError> {
        let is_open = |apply: &Method| matches!(apply, Method::Gnmi(it) if !it.arbitration);
        let open = inventory.routers.iter().find(|router| is_open(&router.apply));
        open.map_or(Ok(()), |router| {
            let fault = GnmiSettingsError::NoArbitration;
            Err(InventoryError::Gnmi { router: router.name.clone(), fault })
        })
    }

    /// Returns the beginning of all keys of these controllers.
    pub(crate) fn prefix(&self) -> String {
        format!("/weft/route/{}/", self.name)
    }
}

/// Returns `true` if this is the URL of a server that clients can reach.
fn is_page(url: &str) -> bool {
    let at = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let Some((host, port)) = at.and_then(|at| at.rsplit_once(':')) else { return false };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:[]".contains(c);
    let is_host = !host.is_empty() && host.chars().all(is_plain);
    is_host && !is_unspecified(url) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Returns `true` if a URL has the address of all interfaces, which is that of no host.
pub(crate) fn is_unspecified(url: &str) -> bool {
    url.contains("//0.0.0.0:") || url.contains("//[::]:")
}
