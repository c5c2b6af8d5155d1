//! A tenant's interface in a configuration, and how it is opened.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use weft_ports::{
    Namespace, Port as Interface, PortError, Role, TapConfig, TapPort, VhostConfig, VhostPort,
};
use weft_vpc::{GATEWAY, PortPolicies, Vni};

use super::{ConfigError, Mac, address, value, vni};

/// A tenant's interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Port {
    /// What it is called here.
    pub name: String,
    /// Its network.
    pub vni: u32,
    /// Its address on Ethernet. Frames from another are dropped.
    pub mac: Mac,
    /// Its IP addresses, with the lengths of their prefixes: `192.168.0.1/24`. A TAP interface gets
    /// them; questions for them are answered on this host.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// What its tenant may send and receive.
    #[serde(flatten)]
    pub policies: PortPolicies,
    /// The interface, if it is a TAP: for containers, namespaces and bare hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tap: Option<Tap>,
    /// The interface, if it is a vhost-user socket: for virtual machines and DPDK.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vhost_user: Option<VhostUser>,
}

/// A TAP interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Tap {
    /// What the tenant calls it.
    pub interface: String,
    /// The network namespace it is in: a name of `ip netns`, or a path.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Whether it outlives the daemon, so that a restart leaves the tenant's interface alone.
    #[serde(default)]
    pub persistent: bool,
}

/// A vhost-user socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct VhostUser {
    /// Where it is.
    pub socket: PathBuf,
    /// Whether the front end listens there, and this daemon connects.
    #[serde(default)]
    pub connect: bool,
    /// Regions of memory that the front end may share.
    #[serde(default = "max_regions")]
    pub memory_regions: u16,
}

impl VhostUser {
    /// A socket at which front ends connect.
    pub fn at(socket: PathBuf) -> Self {
        Self { socket, connect: false, memory_regions: max_regions() }
    }
}

fn max_regions() -> u16 {
    VhostConfig::MAX_REGIONS
}

impl Port {
    /// Its network.
    ///
    /// # Errors
    /// It has more than 24 bits.
    pub fn vni(&self) -> Result<Vni, ConfigError> {
        vni("port.vni", self.vni)
    }

    /// Holds every value against what it may be.
    ///
    /// # Errors
    /// The first that cannot be.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.vni()?;
        match (&self.tap, &self.vhost_user) {
            (None, None) | (Some(_), Some(_)) => {
                let expected = "either `tap` or `vhost-user` beside it";
                return Err(value("port.name", &self.name, expected));
            }
            _ => {}
        }
        if self.mac.0 == GATEWAY {
            return Err(value("port.mac", self.mac, "another address than the gateway's"));
        }
        self.prefixes().map(drop)
    }

    /// Its IP addresses, with the lengths of their prefixes.
    ///
    /// # Errors
    /// One that is none.
    pub fn prefixes(&self) -> Result<Vec<(IpAddr, u8)>, ConfigError> {
        self.addresses.iter().map(|text| address("port.addresses", text)).collect()
    }

    /// Opens the interface.
    ///
    /// # Errors
    /// The system refuses it.
    pub(crate) fn open(&self, mtu: u16) -> Result<Box<dyn Interface>, PortError> {
        if let Some(VhostUser { socket, connect, memory_regions }) = &self.vhost_user {
            let role = if *connect { Role::Connect } else { Role::Listen };
            return Ok(Box::new(VhostPort::open(&VhostConfig {
                role,
                max_regions: (*memory_regions).into(),
                ..VhostConfig::at(socket)
            })?));
        }
        let tap = self.tap.as_ref().expect("checked: a port is one or the other");
        Ok(Box::new(TapPort::open(&TapConfig {
            namespace: tap.namespace.as_deref().map(namespace_of),
            persistent: tap.persistent,
            mtu: Some(mtu.into()),
            mac: Some(self.mac.0.0),
            addresses: self.prefixes().unwrap_or_default(),
            ..TapConfig::named(&tap.interface)
        })?))
    }
}

fn namespace_of(text: &str) -> Namespace {
    match text.parse() {
        Ok(namespace) => namespace,
        Err(never) => match never {},
    }
}
