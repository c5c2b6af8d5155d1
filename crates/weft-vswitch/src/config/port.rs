//! A tenant's interface in a configuration, and its creation.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_ports::{
    Namespace, Port as Interface, PortError, Role, TapConfig, TapPort, VhostConfig, VhostPort,
};
use weft_vpc::{GATEWAY, PortPolicies, Vni};

use super::{ConfigError, Mac, address, value, vni};
use crate::fleet::PortPoliciesObject;
use crate::mirror::MirrorSettings;

/// Least MTU of an interface with IPv4, bytes (RFC 791, section 3.2).
const MIN_MTU: u16 = 68;

/// A tenant's interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Port {
    /// The port's name on this host.
    pub name: String,
    /// Its network.
    pub vni: u32,
    /// Its Ethernet address. Frames from another address are dropped.
    pub mac: Mac,
    /// Its IP addresses with their prefix lengths: `192.168.0.1/24`. A TAP interface is assigned
    /// them; this host answers address resolution for them.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Names and values that describe its tenant, for people and programs that read the status:
    /// `{ namespace = "shop", pod = "cart-0" }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// `true` to let nothing pass until the fleet has policies for a port with these labels. Only for ports added by command.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("default" = false))]
    pub await_policies: bool,
    /// Copies of its frames, for an analyser.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<MirrorSettings>,
    /// The policies on its traffic.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Tap {
    /// The interface's name in the tenant.
    pub interface: String,
    /// The network namespace of the interface: a name of `ip netns`, or a path.
    #[serde(default)]
    pub namespace: Option<String>,
    /// `true` if the interface outlives the daemon, so that a restart does not remove it from the tenant.
    #[serde(default)]
    pub persistent: bool,
    /// Largest IP packet of the interface, bytes, if it is to be less than one packet of the underlay carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
}

/// A vhost-user socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct VhostUser {
    /// The path of the socket.
    pub socket: PathBuf,
    /// `true` if the front end listens there, and this daemon connects.
    #[serde(default)]
    pub connect: bool,
    /// Largest number of memory regions that the front end may share.
    #[serde(default = "max_regions")]
    pub memory_regions: u16,
    /// Largest number of pairs of queues that the guest may use, 16 at most.
    #[serde(default = "max_pairs", skip_serializing_if = "is_max_pairs")]
    #[schemars(extend("default" = VhostConfig::MAX_PAIRS))]
    pub queue_pairs: u8,
    /// `true` if the guest may move to another host by live migration: while it does not run here, its machine may be
    /// on another host, and its start here is announced to all hosts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("default" = false))]
    pub may_move: bool,
}

impl VhostUser {
    /// Returns a socket at which front ends connect.
    pub fn at(socket: PathBuf) -> Self {
        Self {
            socket,
            connect: false,
            memory_regions: max_regions(),
            queue_pairs: max_pairs(),
            may_move: false,
        }
    }
}

fn max_regions() -> u16 {
    VhostConfig::MAX_REGIONS
}

fn max_pairs() -> u8 {
    VhostConfig::MAX_PAIRS
}

fn is_max_pairs(pairs: &u8) -> bool {
    *pairs == max_pairs()
}

impl Port {
    /// Returns `true` if a port added by command has these policies.
    pub(crate) fn has(&self, policies: &PortPoliciesObject) -> bool {
        let has = |(key, value): (&String, &String)| self.labels.get(key) == Some(value);
        self.vni == policies.vni && policies.labels.iter().all(has)
    }

    /// Returns the number of its network.
    ///
    /// # Errors
    /// The number has more than 24 bits.
    pub fn vni(&self) -> Result<Vni, ConfigError> {
        vni("port.vni", self.vni)
    }

    /// Returns `true` if its guest may move to another host.
    pub(crate) fn may_move(&self) -> bool {
        self.vhost_user.as_ref().is_some_and(|vhost| vhost.may_move)
    }

    /// Checks every value.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.vni()?;
        match (&self.tap, &self.vhost_user) {
            (None, None) | (Some(_), Some(_)) => {
                let expected = "either `tap` or `vhost-user` beside it";
                return Err(value("port.name", &self.name, expected));
            }
            _ => {}
        }
        if let Some(mtu) = self.tap.as_ref().and_then(|tap| tap.mtu).filter(|&mtu| mtu < MIN_MTU) {
            return Err(value("port.tap.mtu", mtu, format!("{MIN_MTU} or more")));
        }
        let pairs = self.vhost_user.as_ref().map_or(1, |vhost| vhost.queue_pairs);
        if !(1..=VhostConfig::MAX_PAIRS).contains(&pairs) {
            return Err(value("port.vhost-user.queue-pairs", pairs, "1 to 16"));
        }
        if self.mac.0 == GATEWAY {
            return Err(value("port.mac", self.mac, "another address than the gateway's"));
        }
        self.prefixes().map(drop)
    }

    /// Returns its IP addresses with their prefix lengths.
    ///
    /// # Errors
    /// The first text that is no address with a prefix length.
    pub fn prefixes(&self) -> Result<Vec<(IpAddr, u8)>, ConfigError> {
        self.addresses.iter().map(|text| address("port.addresses", text)).collect()
    }

    /// Opens the interface.
    ///
    /// # Errors
    /// The system's refusal.
    pub(crate) fn open(&self, mtu: u16) -> Result<Box<dyn Interface>, PortError> {
        if let Some(vhost) = &self.vhost_user {
            let VhostUser { socket, connect, memory_regions, queue_pairs, may_move } = vhost;
            let role = if *connect { Role::Connect } else { Role::Listen };
            return Ok(Box::new(VhostPort::open(&VhostConfig {
                role,
                max_regions: (*memory_regions).into(),
                max_pairs: (*queue_pairs).into(),
                mac: may_move.then_some(self.mac.0.0),
                ..VhostConfig::at(socket)
            })?));
        }
        let tap = self.tap.as_ref().expect("checked: a port is one or the other");
        Ok(Box::new(TapPort::open(&TapConfig {
            namespace: tap.namespace.as_deref().map(namespace_of),
            persistent: tap.persistent,
            mtu: Some(tap.mtu.map_or(mtu, |own| own.min(mtu)).into()),
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
