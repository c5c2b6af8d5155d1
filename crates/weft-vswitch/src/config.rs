//! What a daemon is started with: a TOML file.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weft_guard::TlsFiles;
use weft_seal::Seals;
use weft_transport::TransportConfig;
use weft_transport::{congestion, path};
use weft_units::Duration;
use weft_vpc::{NetworkConfig, Policies, PoliciesError, Vni};
use weft_wire::{DataHeader, EthernetHeader, MessageHeader, VirtioNetHeader, VxlanHeader};

use crate::redirect::MOST_THREADS;

mod encryption;
mod mac;
mod port;
mod route;

pub use encryption::Encryption;
pub use mac::Mac;
pub use port::{Port, Tap, VhostUser};
pub use route::{Destination, Route, Row};

/// The control socket of a daemon that was not told another.
pub const CONTROL: &str = "/run/weft/vpc.sock";

/// Everything a daemon is started with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// This host.
    pub host: Host,
    /// Tenants' networks.
    #[serde(default, rename = "network")]
    pub networks: Vec<Network>,
    /// Tenants' interfaces.
    #[serde(default, rename = "port")]
    pub ports: Vec<Port>,
    /// Where machines and prefixes are.
    #[serde(default, rename = "route")]
    pub routes: Vec<Route>,
    /// Access lists and security groups that ports name.
    #[serde(flatten)]
    pub policies: Policies,
}

/// This host in the network that carries the overlay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Host {
    /// Its address there.
    pub address: IpAddr,
    /// The UDP port of the overlay, the same on all hosts.
    #[serde(default = "vxlan_port")]
    pub port: u16,
    /// Bytes of an IP packet there.
    #[serde(default = "ethernet_mtu")]
    pub mtu: u16,
    /// Paths to spread over: UDP source ports.
    #[serde(default = "paths")]
    pub paths: u16,
    /// Threads that carry frames. Each port belongs to one.
    #[serde(default = "one")]
    pub threads: u8,
    /// Packets of one connection that take the same path before the next is chosen (BIFROST, 4.1).
    #[serde(default = "group")]
    pub group: u16,
    /// Which path the next packet takes: any that `weft list policies` shows. The paper's by default.
    #[serde(default = "rtt_groups")]
    pub policy: String,
    /// How much may be in flight: any that `weft list congestion` shows. By default `weft`, which marks and
    /// standing delay slow and losses alone do not; `swift` is the paper's.
    #[serde(default = "weft")]
    pub congestion: String,
    /// Whether the kernel is asked when each packet arrived. What a packet then waits for this host's processor counts
    /// as the host's delay, not as its path's: paths are ranked by what they take, and Swift has a window for each.
    #[serde(default)]
    pub kernel_timestamps: bool,
    /// Encryption to all other hosts.
    #[serde(default)]
    pub encryption: Encryption,
    /// TLS of its metrics; their HTTP is not encrypted if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    /// The socket on which it is asked and changed.
    #[serde(default = "control")]
    pub control: PathBuf,
}

/// A tenant's network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Network {
    /// Its number, 24 bits.
    pub vni: u32,
    /// Whether lost frames are sent again.
    #[serde(default = "yes")]
    pub reliable: bool,
    /// Whether tenants see frames in the order they were sent.
    #[serde(default = "yes")]
    pub in_order: bool,
    /// The other hosts that have ports of it.
    #[serde(default)]
    pub peers: BTreeSet<IpAddr>,
    /// The gateway's address in each subnet, with the length of its prefix: `192.168.7.254/24`. Every host answers
    /// for it, and passes on what is for another subnet. Give all hosts the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
}

fn vxlan_port() -> u16 {
    VxlanHeader::PORT
}

fn ethernet_mtu() -> u16 {
    1500
}

fn paths() -> u16 {
    8
}

fn one() -> u8 {
    1
}

fn group() -> u16 {
    50
}

fn rtt_groups() -> String {
    path::Kind::RttGroups.name().to_owned()
}

/// Swift halves on losses, which are what the overlay is for, and a fixed window fills every queue
/// (`docs/design/congestion.md`).
fn weft() -> String {
    congestion::Kind::Weft.name().to_owned()
}

fn control() -> PathBuf {
    CONTROL.into()
}

fn yes() -> bool {
    true
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {cause}", file.display())]
    Unreadable {
        /// Which file.
        file: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// It is no TOML, or says something else than a configuration does.
    #[error("{}: {cause}", file.display())]
    Malformed {
        /// Which file.
        file: PathBuf,
        /// What and where.
        cause: toml::de::Error,
    },
    /// Its policies.
    #[error(transparent)]
    Policies(#[from] PoliciesError),
    /// Encryption, or a file with its keys.
    #[error("host.encryption.{key} = {got}: {reason}")]
    Encryption {
        /// Which.
        key: String,
        /// What it is.
        got: String,
        /// Why it cannot be.
        reason: String,
    },
    /// The table of a version before.
    #[error(
        "{}: [host.seal] is no more, as hosts agree on keys by themselves: write [host.encryption] with \
         mode = \"required\" instead, and preshared-key = FILE, which may be the file of the secret", file.display()
    )]
    OldSeal {
        /// Which file.
        file: PathBuf,
    },
    /// A value that cannot be.
    #[error("{key} = {got}: expected {expected}")]
    Value {
        /// Which.
        key: String,
        /// What it is.
        got: String,
        /// What it should be.
        expected: String,
    },
}

fn value(key: impl Into<String>, got: impl ToString, expected: impl Into<String>) -> ConfigError {
    ConfigError::Value { key: key.into(), got: got.to_string(), expected: expected.into() }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(file)
            .map_err(|cause| ConfigError::Unreadable { file: file.into(), cause })?;
        let malformed = |cause| ConfigError::Malformed { file: file.into(), cause };
        let config: Self = match toml::from_str(&text) {
            Err(_) if has_old_seal(&text) => {
                return Err(ConfigError::OldSeal { file: file.into() });
            }
            config => config.map_err(malformed)?,
        };
        config.check()?;
        Ok(config)
    }

    /// Holds every value against what it may be, and against the others.
    ///
    /// # Errors
    /// The first that cannot be.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.host.encryption.settings()?;
        self.host.transport()?;
        self.host.check_threads()?;
        self.policies.check()?;
        let mut names = BTreeSet::new();
        for network in &self.networks {
            network.vni()?;
            network.gateways()?;
            if network.peers.contains(&self.host.address) {
                let expected = "other hosts only";
                return Err(value("network.peers", self.host.address, expected));
            }
        }
        for port in &self.ports {
            port.check()?;
            if !names.insert(&port.name) {
                return Err(value("port.name", &port.name, "a name that no other port has"));
            }
        }
        for port in &self.ports {
            self.policies.acl_of(&port.policies)?;
            self.policies.groups_of(&port.policies)?;
            port.policies.check().map_err(PoliciesError::from)?;
        }
        let mut known = BTreeSet::new();
        for route in &self.routes {
            vni("route.vni", route.vni)?;
            if !known.insert((route.vni, route.destination())) {
                let expected = "one row of a network at most";
                return Err(value("route", route.destination(), expected));
            }
        }
        Ok(())
    }
}

/// Returns `true` if a file has the table of encryption under its former name.
fn has_old_seal(text: &str) -> bool {
    let table: Result<toml::Table, _> = toml::from_str(text);
    table.is_ok_and(|table| table.get("host").is_some_and(|host| host.get("seal").is_some()))
}

fn vni(key: &str, number: u32) -> Result<Vni, ConfigError> {
    Vni::new(number).ok_or_else(|| value(key, number, "0 to 16777215"))
}

impl Host {
    /// Where it receives.
    pub fn socket(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }

    /// Where another host receives.
    pub fn peer(&self, address: IpAddr) -> SocketAddr {
        SocketAddr::new(address, self.port)
    }

    /// Bytes of a frame that one packet carries with all its headers.
    pub fn payload(&self) -> u16 {
        let ip = if self.address.is_ipv4() { 20 } else { 40 };
        let sealed = if self.encryption.is_off() { 0 } else { Seals::OVERHEAD.into() };
        let headers = ip + 8 + VxlanHeader::LEN + sealed + DataHeader::LEN + MessageHeader::LEN;
        self.mtu.saturating_sub(u16::try_from(headers).expect("under 200 bytes"))
    }

    /// The longest IP packet of a tenant that one packet of this network carries, bytes.
    pub fn tenant_mtu(&self) -> u16 {
        let headers = VirtioNetHeader::LEN + EthernetHeader::LEN;
        self.payload().saturating_sub(u16::try_from(headers).expect("26 bytes"))
    }

    fn check_threads(&self) -> Result<(), ConfigError> {
        if !(1..=MOST_THREADS).contains(&self.threads) {
            return Err(value("host.threads", self.threads, format!("1 to {MOST_THREADS}")));
        }
        if self.paths.checked_mul(self.threads.into()).is_none() {
            let expected = "that many source ports for each thread of the others, 65,535 at most";
            return Err(value("host.paths", self.paths, expected));
        }
        Ok(())
    }

    /// How connections behave here (BIFROST, sections 4 and 7.4).
    ///
    /// # Errors
    /// A value that the transport refuses.
    pub fn transport(&self) -> Result<TransportConfig, ConfigError> {
        let named = |kind: &congestion::Kind| (kind.name(), *kind);
        let congestion =
            row("congestion", &self.congestion, congestion::Kind::ALL.iter().map(named))?;
        let named = |kind: &path::Kind| (kind.name(), *kind);
        let policy = row("policy", &self.policy, path::Kind::ALL.iter().map(named))?;
        let bifrost = TransportConfig::bifrost();
        let sealed = if self.encryption.is_off() { 0 } else { Seals::OVERHEAD };
        let transport = TransportConfig {
            mtu: self.payload(),
            paths: self.paths,
            spray_unit: self.group,
            policy,
            congestion,
            base_rtt: Duration::from_micros(300),
            first_window: 64 << 10,
            queue_target: Duration::from_millis(2),
            ack_delay: Duration::from_micros(200),
            packet_overhead: bifrost.packet_overhead + sealed,
            ..bifrost
        };
        let refused = |error: weft_transport::ConfigError| {
            value(format!("host.{}", error.field), error.got, error.expected)
        };
        transport.validate().map_err(refused)?;
        Ok(transport)
    }
}

/// The row of a registry that a key of the host names.
fn row<T>(
    key: &str,
    name: &str,
    known: impl Iterator<Item = (&'static str, T)> + Clone,
) -> Result<T, ConfigError> {
    let found = known.clone().find(|(known, _)| *known == name);
    found.map(|(_, row)| row).ok_or_else(|| {
        let names: Vec<_> = known.map(|(name, _)| name).collect();
        value(format!("host.{key}"), name, names.join(", "))
    })
}

impl Network {
    /// Its number.
    ///
    /// # Errors
    /// It has more than 24 bits.
    pub fn vni(&self) -> Result<Vni, ConfigError> {
        vni("network.vni", self.vni)
    }

    /// The gateway's addresses, with the lengths of their prefixes.
    ///
    /// # Errors
    /// One that is none.
    pub fn gateways(&self) -> Result<Vec<(IpAddr, u8)>, ConfigError> {
        self.gateways.iter().map(|text| address("network.gateways", text)).collect()
    }

    /// How the switch carries it.
    pub fn carriage(&self) -> NetworkConfig {
        NetworkConfig { reliable: self.reliable, in_order: self.in_order }
    }
}

/// An address and the length of its prefix.
fn address(key: &str, text: &str) -> Result<(IpAddr, u8), ConfigError> {
    let parse = || {
        let (address, length) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = length.parse().ok().filter(|&length: &u8| length <= most)?;
        Some((address, length))
    };
    parse().ok_or_else(|| value(key, text, "an address and its prefix: 192.168.0.1/24"))
}

#[cfg(test)]
mod tests;
