//! The table `[host]`: this host in the network that carries the overlay.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_guard::TlsFiles;
use weft_seal::Seals;
use weft_transport::TransportConfig;
use weft_transport::{congestion, path};
use weft_udp::sockets::Wire;
use weft_units::Duration;
use weft_wire::{DataHeader, EthernetHeader, MessageHeader, VirtioNetHeader, VxlanHeader};

use super::{CONTROL, ConfigError, Encryption, Port, STATE, value};
use crate::redirect::MAX_THREADS;

/// This host in the network that carries the overlay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Host {
    /// Its address in that network.
    pub address: IpAddr,
    /// The UDP port of the overlay, the same on all hosts.
    #[serde(default = "vxlan_port")]
    pub port: u16,
    /// The MTU of that network, bytes of an IP packet.
    #[serde(default = "ethernet_mtu")]
    pub mtu: u16,
    /// Number of paths to spread packets over, one for each UDP source port.
    #[serde(default = "paths")]
    pub paths: u16,
    /// Number of threads that carry frames. Each port belongs to one.
    #[serde(default = "one")]
    pub threads: u8,
    /// Number of packets of one connection that take the same path before the next is chosen (BIFROST, 4.1).
    #[serde(default = "group")]
    pub group: u16,
    /// The policy that chooses each packet's path, one of `weft list policies`. The paper's by default.
    #[serde(default = "rtt_groups")]
    #[schemars(extend("enum" = path::Kind::NAMES))]
    pub policy: String,
    /// The congestion control, one of `weft list congestion`. By default `weft`, which slows down on marks and
    /// standing delay but not on losses alone; `swift` is the paper's.
    #[serde(default = "weft")]
    #[schemars(extend("enum" = congestion_names()))]
    pub congestion: String,
    /// `true` if the kernel records each packet's arrival time. The time that a packet then waits for this host's
    /// processor counts as delay of the host and not of its path: paths are ranked by delay, and Swift has a window
    /// for each.
    #[serde(default)]
    pub kernel_timestamps: bool,
    /// The way of packets to the interface (`docs/device.md`, past the kernel's stack): `kernel`, or `af-xdp` for a host of
    /// one thread. Without it, that of `WEFT_WIRE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<Wire>,
    /// Encryption to all other hosts.
    #[serde(default)]
    pub encryption: Encryption,
    /// The TLS files of its metrics endpoint; without them its HTTP is unencrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    /// The path of its control socket.
    #[serde(default = "control")]
    pub control: PathBuf,
    /// The file in which changes made by command are kept. By default `/var/lib/weft/vpc.json`; with another `control`,
    /// the file of its name with the extension `json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
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

/// Returns the default: Swift halves its window on losses, which the overlay has to survive, and a fixed window
/// fills every queue (`docs/design/congestion.md`).
fn weft() -> String {
    congestion::Kind::Weft.name().to_owned()
}

fn congestion_names() -> Vec<&'static str> {
    congestion::Kind::all_on_real_packets().map(congestion::Kind::name).collect()
}

fn control() -> PathBuf {
    CONTROL.into()
}

impl Host {
    /// Returns the address and port on which it receives.
    pub fn socket(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }

    /// Returns the file in which changes made by command are kept.
    pub fn state_file(&self) -> PathBuf {
        let beside = || match self.control == Path::new(CONTROL) {
            true => STATE.into(),
            false => self.control.with_extension("json"),
        };
        self.state.clone().unwrap_or_else(beside)
    }

    /// Returns the address and port on which another host receives.
    pub fn peer(&self, address: IpAddr) -> SocketAddr {
        SocketAddr::new(address, self.port)
    }

    /// Returns the number of bytes of a frame that one packet carries after all its headers.
    pub fn payload(&self) -> u16 {
        let ip = if self.address.is_ipv4() { 20 } else { 40 };
        let sealed = if self.encryption.is_off() { 0 } else { Seals::OVERHEAD.into() };
        let headers = ip + 8 + VxlanHeader::LEN + sealed + DataHeader::LEN + MessageHeader::LEN;
        self.mtu.saturating_sub(u16::try_from(headers).expect("under 200 bytes"))
    }

    /// Returns the largest IP packet of a tenant that one packet of this network carries, bytes.
    pub fn tenant_mtu(&self) -> u16 {
        let headers = VirtioNetHeader::LEN + EthernetHeader::LEN;
        self.payload().saturating_sub(u16::try_from(headers).expect("26 bytes"))
    }

    /// Checks the mirror of a port.
    ///
    /// # Errors
    /// A value is invalid, or this host sends nothing unencrypted.
    pub(crate) fn check_mirror(&self, port: &Port) -> Result<(), ConfigError> {
        let Some(mirror) = &port.mirror else { return Ok(()) };
        mirror.vni()?;
        if mirror.to == self.address || mirror.to.is_unspecified() {
            return Err(value("port.mirror.to", mirror.to, "another host's address"));
        }
        if self.encryption.is_required() {
            let expected =
                "none, as it sends frames unencrypted and [host.encryption] requires encryption";
            return Err(value("port.mirror", mirror.to, expected));
        }
        Ok(())
    }

    pub(super) fn check_threads(&self) -> Result<(), ConfigError> {
        if !(1..=MAX_THREADS).contains(&self.threads) {
            return Err(value("host.threads", self.threads, format!("1 to {MAX_THREADS}")));
        }
        if self.paths.checked_mul(self.threads.into()).is_none() {
            let expected = "that many source ports for each thread of the others, 65,535 at most";
            return Err(value("host.paths", self.paths, expected));
        }
        Ok(())
    }

    /// Returns the configuration of connections (BIFROST, sections 4 and 7.4).
    ///
    /// # Errors
    /// A value that the transport refuses.
    pub fn transport(&self) -> Result<TransportConfig, ConfigError> {
        let known = congestion::Kind::all_on_real_packets().map(|kind| (kind.name(), kind));
        let congestion = row("congestion", &self.congestion, known)?;
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

/// Returns the row of a registry that a key of the host names.
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
