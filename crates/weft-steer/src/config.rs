//! The configuration of a controller, a TOML file.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_guard::TlsFiles;
use weft_route::ControllerConfig;
use weft_units::Duration;
use weft_wire::sflow;

use crate::inventory::is_interface;
use crate::{ClusterConfig, ConfigError, Inventory, RouterEntry, SteerError};

/// The configuration of a controller and its routers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SteerConfig {
    /// This host's address in the management network of the routers; sFlow is received there, on port 6343.
    pub management: Option<IpAddr>,
    /// The address on which sFlow is received instead. Without either it is loopback, which other hosts cannot reach.
    pub listen: Option<SocketAddr>,
    /// The interface on which sFlow must be received; any by default.
    pub interface: Option<String>,
    /// The file in which the controller's state survives a restart; none by default, and none with `cluster`.
    pub state: Option<PathBuf>,
    /// Several controllers of this fabric that keep their decisions in etcd; by default this is the only one, or the others
    /// know nothing of its decisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterConfig>,
    /// The TLS files of the HTTP page and the job interface; without them HTTP is not encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    /// The interval at which all tables are read, besides reads for a move or a sample.
    pub read_every: Duration,
    /// The duration of the lease; another controller may act this long after this one's end.
    pub lease: Duration,
    /// `true` to decide and report moves without applying them.
    pub dry_run: bool,
    /// A running lab whose routers are steered, instead of `routers`.
    pub lab: Option<String>,
    /// The settings of `weft-route`'s controller.
    pub controller: ControllerConfig,
    /// The routers.
    #[serde(rename = "router")]
    pub routers: Vec<RouterEntry>,
}

impl Default for SteerConfig {
    fn default() -> Self {
        Self {
            management: None,
            listen: None,
            interface: None,
            state: None,
            cluster: None,
            tls: None,
            read_every: Duration::from_secs(5),
            lease: Duration::from_secs(15),
            dry_run: false,
            lab: None,
            controller: ControllerConfig::default(),
            routers: vec![],
        }
    }
}

impl SteerConfig {
    /// Reads a configuration from a file and checks it.
    ///
    /// # Errors
    /// Returns `Read`, or `Config` with the line or the wrong name.
    pub fn read(path: &Path) -> Result<Self, SteerError> {
        let text = fs::read_to_string(path)
            .map_err(|source| SteerError::Read { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|reason| SteerError::Config { path: path.to_owned(), reason })
    }

    /// Parses a configuration and checks it.
    ///
    /// # Errors
    /// Returns the first fault.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text).map_err(|error| {
            let words =
                ["missing field `etcd`", "missing field `endpoints`", "unknown field `endpoints`"];
            match words.iter().any(|words| error.message().starts_with(words)) {
                true => ConfigError::ClusterEtcd(Box::new(error)),
                false => ConfigError::Toml(error),
            }
        })?;
        config.check()?;
        Ok(config)
    }

    /// Checks the values.
    ///
    /// # Errors
    /// Returns the first fault.
    pub fn check(&self) -> Result<(), ConfigError> {
        let config = self;
        let inventory = Inventory { routers: config.routers.clone() };
        match (&config.lab, config.routers.is_empty()) {
            (Some(_), false) => return Err(ConfigError::LabAndRouters),
            (Some(_), true) => {}
            (None, _) => inventory.check()?,
        }
        let is_wrong = |it: &&String| !is_interface(it);
        if let Some(name) = config.interface.as_ref().filter(is_wrong) {
            return Err(ConfigError::Interface(name.clone()));
        }
        if let Some(address) = config.management.filter(IpAddr::is_unspecified) {
            return Err(ConfigError::Management(address));
        }
        for (name, span) in [
            ("read_every", config.read_every),
            ("lease", config.lease),
            ("controller.alarm.window", config.controller.alarm.window),
            ("controller.probes.every", config.controller.probes.every),
            ("controller.probes.window", config.controller.probes.window),
        ] {
            if span < Duration::from_millis(100) {
                return Err(ConfigError::TooShort { name, span });
            }
        }
        if config.lease < Duration::from_secs(3) {
            return Err(ConfigError::Lease(config.lease));
        }
        if let Some(cluster) = &config.cluster {
            cluster.check()?;
            cluster.check_inventory(&inventory)?;
            if config.state.is_some() {
                return Err(ConfigError::ClusterAndState);
            }
        }
        Ok(())
    }

    /// Returns the address on which sFlow is received.
    pub fn listen(&self) -> SocketAddr {
        let management = self.management.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        self.listen.unwrap_or_else(|| SocketAddr::new(management, sflow::PORT))
    }

    /// Returns the routers that it lists. The caller reads the routers of a lab.
    ///
    /// # Errors
    /// Returns `UnreadLab` if it names a lab.
    pub fn inventory(&self) -> Result<Inventory, SteerError> {
        match &self.lab {
            Some(lab) => Err(SteerError::UnreadLab { lab: lab.clone() }),
            None => Ok(Inventory { routers: self.routers.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_the_papers_and_sflows() {
        let tls = "tls = { certificate = 'c', key = 'k', clients = 'a' }";
        let config = SteerConfig::parse(&format!("lab = 'lab'\n{tls}")).unwrap();
        assert_eq!(config.tls.as_ref().and_then(|it| it.clients.clone()), Some("a".into()));
        assert_eq!(config.listen().port(), 6343);
        assert_eq!(config.controller.alarm.marks, 500);
        let written = toml::to_string(&config).unwrap();
        assert_eq!(SteerConfig::parse(&written).unwrap(), config);
    }

    #[test]
    fn the_routers_of_a_lab_are_left_to_the_caller() {
        let router = "[[router]]\nname = 'a'\nagent = '1.1.1.1'";
        let inventory = |text: &str| SteerConfig::parse(text).unwrap().inventory();
        assert_eq!(inventory(router).unwrap().routers.len(), 1);
        assert!(matches!(inventory("lab = 'x'"), Err(SteerError::UnreadLab { lab }) if lab == "x"));
    }

    #[test]
    fn sflow_is_received_on_loopback_unless_a_management_or_listen_address_is_given() {
        for (keys, want) in [
            ("", "127.0.0.1:6343"),
            ("management = '10.9.0.1'", "10.9.0.1:6343"),
            ("management = 'fd00::1'", "[fd00::1]:6343"),
            ("listen = '0.0.0.0:7000'\nmanagement = '10.9.0.1'", "0.0.0.0:7000"),
        ] {
            let config = SteerConfig::parse(&format!("lab = 'lab'\n{keys}")).unwrap();
            assert_eq!(config.listen().to_string(), want);
        }
    }

    #[test]
    fn an_invalid_configuration_is_refused_with_the_name_of_its_key() {
        for (text, words) in [
            ("", "nothing to steer"),
            ("lab = 'x'\nlisten = 'here'", "listen"),
            ("lab = 'x'\ninterface = 'mgmt0; reboot'", "interface is \"mgmt0; reboot\""),
            ("lab = 'x'\nmanagement = '0.0.0.0'", "management is 0.0.0.0"),
            ("lab = 'x'\ncolour = 1", "colour"),
            ("lab = 'x'\ntls = { certificate = 'c' }", "key"),
            ("lab = 'x'\nlease = '1s'", "lease is 1s"),
            (
                "lab = 'x'\nstate = 'a'\ncluster.etcd.endpoints = ['h:2379']",
                "`state` and `cluster`",
            ),
            ("lab = 'x'\ncluster.etcd.endpoints = []", "etcd"),
            ("lab = 'x'\ncluster = { name = 'a/b', etcd.endpoints = ['h:1'] }", "name is \"a/b\""),
            ("lab = 'x'\ncluster = { ttl = '2500ms', etcd.endpoints = ['h:1'] }", "ttl is 2500ms"),
            (
                "lab = 'x'\ncluster = { url = 'h:7490', etcd.endpoints = ['h:1'] }",
                "url is \"h:7490\"",
            ),
            (
                "lab = 'x'\ncluster = { url = 'http://h', etcd.endpoints = ['h:1'] }",
                "url is \"http://h\"",
            ),
            (
                "lab = 'x'\ncluster = { url = 'http://[::]:7490', etcd.endpoints = ['h:1'] }",
                "url is \"http://[::]:7490\"",
            ),
            ("lab = 'x'\ncluster = {}", "[cluster.etcd] endpoints = ["),
            ("lab = 'x'\ncluster.etcd = {}", "[cluster.etcd] endpoints = ["),
            ("lab = 'x'\ncluster.endpoints = ['h:1']", "[cluster.etcd] endpoints = ["),
            ("lab = 'x'\ncluster.etcd.endpoints = ['h']", "cluster.etcd: endpoint \"h\""),
            (
                "lab = 'x'\ncluster.etcd = { endpoints = ['h:1'], timeout = '1ms' }",
                "cluster.etcd: timeout",
            ),
            (
                "cluster.etcd.endpoints = ['h:1']\n[[router]]\nname = 'a'\nagent = '1.1.1.1'\n\
                 apply.gnmi = { address = 'a:9339' }",
                "router \"a\": apply.gnmi: set `arbitration = true`",
            ),
            ("lab = 'x'\nread_every = '1ms'", "read_every is 1ms"),
            ("lab = 'x'\ncontroller.probes.every = '1ms'", "controller.probes.every is 1ms"),
            ("lab = 'x'\n[[router]]\nname = 'a'\nagent = '1.1.1.1'", "exclude each other"),
        ] {
            let error = SteerConfig::parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
