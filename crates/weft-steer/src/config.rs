//! How a controller is set up: a TOML file.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weft_guard::TlsFiles;
use weft_lab::Lab;
use weft_route::ControllerConfig;
use weft_units::Duration;
use weft_wire::sflow;

use crate::inventory::is_interface;
use crate::{Inventory, RouterEntry, SteerError};

/// A controller and the routers it steers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SteerConfig {
    /// This host's address in the network that routers are managed by: sFlow is taken there, at port 6343.
    pub management: Option<IpAddr>,
    /// The address at which sFlow is taken instead. Without either it is loopback, where no other host sends.
    pub listen: Option<SocketAddr>,
    /// The interface that sFlow must come in by; any, if not given.
    pub interface: Option<String>,
    /// Where what the controller knows is kept over a restart; nowhere, if not given.
    pub state: Option<PathBuf>,
    /// TLS of the page and of those who announce jobs; their HTTP is not encrypted if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    /// How often all tables are read, besides when a move or a sample asks for it.
    pub read_every: Duration,
    /// For how long the lease is asked; another controller may act that long after this one's end.
    pub lease: Duration,
    /// Decide and say what would be done, and do nothing.
    pub dry_run: bool,
    /// A running lab whose routers are steered, in place of those below.
    pub lab: Option<String>,
    /// What is decided when: `weft-route`'s.
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
    /// Reads a configuration and checks it.
    ///
    /// # Errors
    /// `Read`; `Config` with the line, or with the name that is wrong.
    pub fn read(path: &Path) -> Result<Self, SteerError> {
        let text = fs::read_to_string(path)
            .map_err(|source| SteerError::Read { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|reason| SteerError::Config { path: path.to_owned(), reason })
    }

    /// The configuration that a text is.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let inventory = Inventory { routers: config.routers.clone() };
        match (&config.lab, config.routers.is_empty()) {
            (Some(_), false) => return Err("`lab` and [[router]] exclude each other".into()),
            (Some(_), true) => {}
            (None, _) => inventory.check()?,
        }
        let is_wrong = |it: &&String| !is_interface(it);
        if let Some(name) = config.interface.as_ref().filter(is_wrong) {
            return Err(format!("interface is {name:?}, which names none"));
        }
        if let Some(address) = config.management.filter(IpAddr::is_unspecified) {
            return Err(format!("management is {address}, which is no address of this host"));
        }
        for (name, span) in [
            ("read_every", config.read_every),
            ("lease", config.lease),
            ("controller.alarm.window", config.controller.alarm.window),
        ] {
            if span < Duration::from_millis(100) {
                return Err(format!("{name} is {span}; 100ms at least"));
            }
        }
        if config.lease < Duration::from_secs(3) {
            return Err(format!(
                "lease is {}; routers count in seconds, 3s at least",
                config.lease
            ));
        }
        Ok(config)
    }

    /// Returns where sFlow is taken.
    pub fn listen(&self) -> SocketAddr {
        let management = self.management.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        self.listen.unwrap_or_else(|| SocketAddr::new(management, sflow::PORT))
    }

    /// The routers, those of the lab where one is named.
    ///
    /// # Errors
    /// `Lab` when there is no such lab.
    pub fn inventory(&self) -> Result<Inventory, SteerError> {
        match &self.lab {
            Some(lab) => Ok(Inventory::of_lab(&Lab::open(lab)?)),
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
    fn sflow_is_taken_on_loopback_unless_a_management_address_or_another_is_given() {
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
    fn a_configuration_that_cannot_be_meant_is_refused_by_name() {
        for (text, words) in [
            ("", "nothing to steer"),
            ("lab = 'x'\nlisten = 'here'", "listen"),
            ("lab = 'x'\ninterface = 'mgmt0; reboot'", "interface is \"mgmt0; reboot\""),
            ("lab = 'x'\nmanagement = '0.0.0.0'", "management is 0.0.0.0"),
            ("lab = 'x'\ncolour = 1", "colour"),
            ("lab = 'x'\ntls = { certificate = 'c' }", "key"),
            ("lab = 'x'\nlease = '1s'", "lease is 1s"),
            ("lab = 'x'\nread_every = '1ms'", "read_every is 1ms"),
            ("lab = 'x'\n[[router]]\nname = 'a'\nagent = '1.1.1.1'", "exclude each other"),
        ] {
            let error = SteerConfig::parse(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
