//! The settings of a client, a table of a daemon's configuration.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_guard::tls::{Connector, TlsClientFiles};
use weft_units::Duration;

use crate::EtcdError;

/// The settings of a client: `etcd = { endpoints = ["10.0.0.1:2379"], tls = { ca = "…" } }`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdSettings {
    /// The host name or address, and the client port, of each member: `10.0.0.1:2379`. Clients begin with any of them, and
    /// go to the next when one fails.
    pub endpoints: Vec<String>,
    /// The TLS files; without them nothing is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<EtcdTls>,
    /// Maximum time of a request, with its connection.
    #[serde(default = "default_timeout")]
    pub timeout: Duration,
}

/// The PEM files with which etcd is trusted, and with which it recognises its client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdTls {
    /// The certificates of the authorities that a member's certificate must chain to.
    pub ca: PathBuf,
    /// The client's certificate. etcd takes its common name as the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// The key of the client's certificate. Only its owner may read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// The name in the members' certificates, if it is not the host of the endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

const fn default_timeout() -> Duration {
    Duration::from_secs(5)
}

impl EtcdSettings {
    /// Returns the settings of members that are reached without TLS.
    pub fn plain(endpoints: &[&str]) -> Self {
        let endpoints = endpoints.iter().map(|&it| it.to_owned()).collect();
        Self { endpoints, tls: None, timeout: default_timeout() }
    }

    /// Checks what the types do not.
    ///
    /// # Errors
    /// Returns the first fault.
    pub fn check(&self) -> Result<(), EtcdError> {
        if self.endpoints.is_empty() {
            return Err(EtcdError::NoEndpoint);
        }
        let is_address = |text: &String| {
            let port = text.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:[]".contains(c);
            matches!(port, Some(Ok(1..))) && !host(text).is_empty() && text.chars().all(plain)
        };
        if let Some(text) = self.endpoints.iter().find(|text| !is_address(text)) {
            return Err(EtcdError::Endpoint(text.clone()));
        }
        if self.tls.as_ref().is_some_and(|tls| tls.certificate.is_some() != tls.key.is_some()) {
            return Err(EtcdError::HalfIdentity);
        }
        if !(Duration::from_millis(100)..=Duration::from_secs(60)).contains(&self.timeout) {
            return Err(EtcdError::Timeout(self.timeout));
        }
        Ok(())
    }

    /// Reads the TLS files.
    pub(crate) fn connector(&self) -> Result<Option<Connector>, EtcdError> {
        let Some(tls) = &self.tls else { return Ok(None) };
        let identity = tls.certificate.clone().zip(tls.key.clone());
        let connector = Connector::new(TlsClientFiles { authorities: tls.ca.clone(), identity })?;
        Ok(Some(connector.with_protocol(b"h2")))
    }

    /// Returns the name that the certificate of an endpoint must have.
    pub(crate) fn server_name<'a>(&'a self, endpoint: &'a str) -> &'a str {
        let named = self.tls.as_ref().and_then(|tls| tls.name.as_deref());
        named.unwrap_or_else(|| host(endpoint))
    }
}

/// Returns the host of an endpoint, without the brackets of IPv6.
fn host(endpoint: &str) -> &str {
    let host = endpoint.rsplit_once(':').map_or("", |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<(), String> {
        let settings: EtcdSettings = toml::from_str(text).map_err(|error| error.to_string())?;
        settings.check().map_err(|error| error.to_string())
    }

    #[test]
    fn endpoints_are_enough_and_every_fault_is_named() {
        assert_eq!(checked("endpoints = ['etcd-0:2379', '[fd00::1]:2379']"), Ok(()));
        let settings = EtcdSettings::plain(&["[fd00::1]:2379"]);
        assert_eq!(settings.server_name("[fd00::1]:2379"), "fd00::1");
        for (text, words) in [
            ("endpoints = []", "endpoints is empty"),
            ("endpoints = ['etcd-0']", "not HOST:PORT"),
            ("endpoints = ['https://etcd-0:2379']", "not HOST:PORT"),
            ("endpoints = ['a:1']\ntls = { ca = 'c', key = 'k' }", "tls.certificate"),
            ("endpoints = ['a:1']\ntimeout = '61s'", "timeout is 61s"),
            ("endpoints = ['a:1']\nuser = 'root'", "user"),
        ] {
            let error = checked(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
