//! The settings of a router's gNMI server, a table of the configuration.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_route::installed::RouterHash;
use weft_units::Duration;

/// The settings of a router's gNMI server: `apply.gnmi = { address = "leaf-0:9339" }`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GnmiSettings {
    /// The server's host name or address, and its port: 9339 is gNMI's (IANA), SONiC's is often 8080 or 50051.
    pub address: String,
    /// The TLS files; without them nothing is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<GnmiTls>,
    /// The user whose name and password are sent with every request, as metadata. Needs `tls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The file with the user's password. Only its owner may read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// The routes that are read.
    #[serde(default)]
    pub routes: RouteSource,
    /// The counters of marked packets.
    #[serde(default)]
    pub marks: MarkCounters,
    /// The network instance whose routes are read and changed.
    #[serde(default = "default_instance")]
    pub instance: String,
    /// The name of the protocol instance that has the static routes.
    #[serde(default = "default_protocol")]
    pub protocol: String,
    /// The hash by which the router selects a next hop, which no OpenConfig model describes. Without it the router's choices
    /// are not predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<RouterHash>,
    /// Maximum time of a request, with its connection.
    #[serde(default = "default_timeout")]
    pub timeout: Duration,
    /// `true` to send the term and the time of the lease as election id with every change (gNMI master arbitration), so that
    /// the router itself refuses a controller whose lease has passed to another. `[cluster]` needs it.
    #[serde(default)]
    pub arbitration: bool,
}

/// The PEM files with which a gNMI server is trusted, and shown who asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GnmiTls {
    /// The certificates of the authorities that the server's certificate must chain to.
    pub ca: PathBuf,
    /// The client's certificate, for servers that require one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// The key of the client's certificate. Only its owner may read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// The name in the server's certificate, if it is not the host of `address`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The routes that are read from a gNMI server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RouteSource {
    /// The abstract forwarding tables (OpenConfig AFT): all routes, as the router forwards.
    #[default]
    Aft,
    /// The static routes of the configuration, for routers whose server has no AFT and that have no other routes.
    Static,
}

/// The counters of marked packets of a gNMI server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MarkCounters {
    /// `ecn-marked-pkts` of the output queues in `/qos`. OpenConfig's own model lacks the leaf; SONiC's extensions of it and
    /// other vendors' have it.
    #[default]
    Openconfig,
    /// `SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS` of the queues in SONiC's `COUNTERS_DB`.
    Sonic,
    /// None: marks are estimated from sampled packets.
    None,
}

fn default_instance() -> String {
    "default".into()
}

fn default_protocol() -> String {
    "static".into()
}

const fn default_timeout() -> Duration {
    Duration::from_secs(5)
}

/// A fault of the settings of a gNMI server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GnmiSettingsError {
    /// The address has no port, or characters that no address has.
    #[error("address {0:?} is not HOST:PORT, such as leaf-0:9339 or [fd00::1]:9339")]
    Address(String),
    /// A user without a password, or the reverse.
    #[error("`user` and `password_file` need each other")]
    HalfUser,
    /// A password that would cross the network in clear text.
    #[error("a password is sent only over TLS: set `tls.ca`")]
    ClearPassword,
    /// A client's certificate without its key, or the reverse.
    #[error("`tls.certificate` and `tls.key` need each other")]
    HalfIdentity,
    /// The timeout is too short or too long.
    #[error("timeout is {0}; it must be 100ms to 60s")]
    Timeout(Duration),
    /// Several controllers, and nothing that keeps a former leader from the router.
    #[error(
        "set `arbitration = true`: with [cluster], the router itself must refuse a controller whose term is over"
    )]
    NoArbitration,
}

impl GnmiSettings {
    /// Returns the settings of a server that is reached without TLS, with defaults.
    pub fn plain(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            tls: None,
            user: None,
            password_file: None,
            routes: RouteSource::default(),
            marks: MarkCounters::default(),
            instance: default_instance(),
            protocol: default_protocol(),
            hash: None,
            timeout: default_timeout(),
            arbitration: false,
        }
    }

    /// Checks what the types do not.
    ///
    /// # Errors
    /// Returns the first fault.
    pub(crate) fn check(&self) -> Result<(), GnmiSettingsError> {
        use GnmiSettingsError::{Address, ClearPassword, HalfIdentity, HalfUser, Timeout};
        // The address becomes the name of the lease's file, inside quotes of a shell.
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:[]".contains(c);
        let port = self.address.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(1..)))
            || self.host().is_empty()
            || !self.address.chars().all(plain)
        {
            return Err(Address(self.address.clone()));
        }
        if self.user.is_some() != self.password_file.is_some() {
            return Err(HalfUser);
        }
        if self.user.is_some() && self.tls.is_none() {
            return Err(ClearPassword);
        }
        if self.tls.as_ref().is_some_and(|tls| tls.certificate.is_some() != tls.key.is_some()) {
            return Err(HalfIdentity);
        }
        if !(Duration::from_millis(100)..=Duration::from_secs(60)).contains(&self.timeout) {
            return Err(Timeout(self.timeout));
        }
        Ok(())
    }

    /// Returns the host of the address, without the brackets of IPv6.
    pub(super) fn host(&self) -> &str {
        let host = self.address.rsplit_once(':').map_or("", |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<(), String> {
        let settings: GnmiSettings = toml::from_str(text).map_err(|error| error.to_string())?;
        settings.check().map_err(|error| error.to_string())
    }

    #[test]
    fn an_address_is_enough_and_every_fault_is_named() {
        assert_eq!(checked("address = 'leaf-0:9339'"), Ok(()));
        let settings: GnmiSettings = toml::from_str("address = '[fd00::1]:9339'").unwrap();
        assert_eq!((settings.check(), settings.host()), (Ok(()), "fd00::1"));
        assert_eq!(settings, GnmiSettings::plain("[fd00::1]:9339"));
        for (text, words) in [
            ("address = 'leaf-0'", "is not HOST:PORT"),
            ("address = 'leaf-0:0'", "is not HOST:PORT"),
            ("address = ':9339'", "is not HOST:PORT"),
            ("address = \"a'; reboot:1\"", "is not HOST:PORT"),
            ("address = 'a:1'\nuser = 'weft'", "need each other"),
            ("address = 'a:1'\nuser = 'weft'\npassword_file = 'p'", "only over TLS"),
            ("address = 'a:1'\ntls = { ca = 'c', key = 'k' }", "tls.certificate"),
            ("address = 'a:1'\ntimeout = '61s'", "timeout is 61s"),
            ("address = 'a:1'\nroutes = 'bgp'", "unknown variant `bgp`"),
            ("address = 'a:1'\ncolour = 1", "colour"),
        ] {
            let error = checked(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
