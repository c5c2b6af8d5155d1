//! The configuration on standard input: the plugin's own keys, and those that the runtime adds.

use std::io::Read;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Map, Value};
use weft_vpc::PortPolicies;
use weft_vswitch::config::CONTROL;

use crate::attachment::Attachment;
use crate::environment::{Endpoint, is_identifier};
use crate::failure::{Code, Failure};
use crate::version::Version;

/// Longest configuration, bytes: GC lists each interface of a host.
const MAX_BYTES: u64 = 16 << 20;

/// Longest name of a network, bytes.
const MAX_NAME: usize = 128;

/// A configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The version of the specification that it is written in.
    pub version: Version,
    /// The network's name.
    pub name: String,
    /// The keys of this plugin.
    pub own: Own,
    /// The result of the plugins before this one; in DEL and CHECK, of all plugins of the list.
    pub previous: Option<Attachment>,
    /// The whole object, which a plugin for addresses gets too.
    pub object: Map<String, Value>,
}

/// The keys of this plugin.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Own {
    /// The number of the overlay's network.
    pub vni: Option<u32>,
    /// The control socket of the overlay's daemon.
    pub control: Option<PathBuf>,
    /// Largest IP packet of the interface, bytes, if it is to be less than the overlay's.
    pub mtu: Option<u16>,
    /// The policies on the container's traffic, with the keys of a `[[port]]`.
    #[serde(default)]
    pub policies: PortPolicies,
    /// `true` if nothing passes until the fleet has policies for the pod.
    #[serde(default)]
    pub await_policies: bool,
    /// The plugin for addresses.
    #[serde(default)]
    pub ipam: Ipam,
    /// The kinds of addresses that a runtime may ask for; none by default.
    #[serde(default)]
    pub allow_addresses: Vec<AddressKind>,
    /// Values of this container, for the capabilities that the configuration declares.
    #[serde(default)]
    pub(crate) runtime_config: RuntimeConfig,
    /// A function of other plugins, which is the host's or the gateway's here.
    #[serde(default)]
    ip_masq: bool,
    /// The interfaces that GC leaves.
    #[serde(rename = "cni.dev/valid-attachments")]
    valid: Option<Vec<Valid>>,
}

/// A kind of address in `allowAddresses`, named as the capability of runtimes that passes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AddressKind {
    /// The Ethernet address.
    Mac,
    /// IP addresses.
    Ips,
}

/// The plugin for addresses.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Ipam {
    /// The program's name; empty for a container without addresses.
    #[serde(rename = "type", default)]
    pub program: String,
}

/// Values of a container.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct RuntimeConfig {
    mac: Option<String>,
    #[serde(default)]
    pub(crate) ips: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Valid {
    #[serde(rename = "containerID")]
    container: String,
    ifname: String,
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// Code 5 if it cannot be read, and those of [`Self::parse`].
    pub fn read(from: impl Read) -> Result<Self, (Version, Failure)> {
        let failed = |failure| (Version::NEWEST, failure);
        let mut bytes = vec![];
        from.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| {
            failed(Failure::new(Code::Io, format!("cannot read the configuration: {error}")))
        })?;
        if bytes.len() as u64 > MAX_BYTES {
            let message = format!("the configuration is longer than {MAX_BYTES} bytes");
            return Err(failed(Failure::new(Code::Decode, message)));
        }
        Self::parse(&bytes)
    }

    /// Parses a configuration. An error has the version in which the runtime expects it.
    ///
    /// # Errors
    /// Code 1, 2, 6 or 7.
    pub fn parse(bytes: &[u8]) -> Result<Self, (Version, Failure)> {
        let object = object(bytes).map_err(|failure| (Version::NEWEST, failure))?;
        let version = version(&object).map_err(|failure| (Version::NEWEST, failure))?;
        Self::of(version, object).map_err(|failure| (version, failure))
    }

    fn of(version: Version, object: Map<String, Value>) -> Result<Self, Failure> {
        let name = match object.get("name") {
            Some(Value::String(name)) if is_identifier(name) && name.len() <= MAX_NAME => name,
            name => {
                let expected = "letters, digits, dots, underscores and hyphens";
                return Err(wrong("name", name.unwrap_or(&Value::Null), expected));
            }
        };
        let own: Own = serde_json::from_value(Value::Object(object.clone()))
            .map_err(|error| Failure::new(Code::Decode, format!("the configuration: {error}")))?;
        if own.ip_masq {
            let message = "ipMasq is true, which this plugin does not support";
            let remedy = "the host's or the gateway's firewall translates addresses";
            return Err(Failure::new(Code::UnsupportedField, message).with_details(remedy));
        }
        let previous = object.get("prevResult").filter(|value| !value.is_null());
        let previous = previous
            .map(|value| {
                Attachment::parse(value).map_err(|why| {
                    Failure::new(Code::Decode, format!("prevResult is no result: {why}"))
                })
            })
            .transpose()?;
        Ok(Self { version, name: name.clone(), own, previous, object })
    }

    /// Returns the number of the overlay's network.
    ///
    /// # Errors
    /// Code 7: there is none, or it has more than 24 bits.
    pub fn vni(&self) -> Result<u32, Failure> {
        let vni = self.own.vni.filter(|vni| *vni < 1 << 24);
        let value = self.own.vni.map_or(Value::Null, Value::from);
        vni.ok_or_else(|| {
            wrong("vni", &value, "the number of the overlay's network, 0 to 16777215")
        })
    }

    /// Returns the control socket of the overlay's daemon.
    pub fn control(&self) -> PathBuf {
        self.own.control.clone().unwrap_or_else(|| CONTROL.into())
    }

    /// Returns the interfaces that GC leaves.
    ///
    /// # Errors
    /// Code 7: the runtime names none, not even an empty list, or one that is no interface.
    pub fn valid(&self) -> Result<Vec<Endpoint>, Failure> {
        let Some(valid) = &self.own.valid else {
            return Err(wrong("cni.dev/valid-attachments", &Value::Null, "a list of interfaces"));
        };
        let endpoint = |it: &Valid| {
            let endpoint = Endpoint::new(it.container.clone(), it.ifname.clone());
            endpoint.map_err(|message| {
                let message = format!("cni.dev/valid-attachments: {message}");
                Failure::new(Code::InvalidConfig, message)
            })
        };
        valid.iter().map(endpoint).collect()
    }
}

impl RuntimeConfig {
    /// Returns the text of the Ethernet address. Runtimes write an empty one where there is none.
    pub(crate) fn mac(&self) -> Option<&str> {
        self.mac.as_deref().filter(|mac| !mac.is_empty())
    }
}

fn object(bytes: &[u8]) -> Result<Map<String, Value>, Failure> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Failure::new(Code::Decode, "the configuration is no object")),
        Err(error) => {
            let message = format!("the configuration is no JSON: {error}");
            Err(Failure::new(Code::Decode, message))
        }
    }
}

/// Returns the version of a configuration. One without a version is of the first.
fn version(object: &Map<String, Value>) -> Result<Version, Failure> {
    match object.get("cniVersion") {
        None => Ok(Version::V0_1_0),
        Some(Value::String(number)) if number.is_empty() => Ok(Version::V0_1_0),
        Some(Value::String(number)) => Version::parse(number).ok_or_else(|| {
            let message = format!("version {number:?} of the specification is not supported");
            let known = Version::ALL.map(Version::number).join(", ");
            Failure::new(Code::IncompatibleVersion, message)
                .with_details(format!("cniVersion may be {known}"))
        }),
        Some(other) => {
            let message = format!("cniVersion is {other}, expected a text");
            Err(Failure::new(Code::Decode, message))
        }
    }
}

/// Returns the version of the configuration that VERSION may have; the newest without one.
pub(crate) fn version_of_any(mut from: impl Read) -> Version {
    let mut bytes = vec![];
    let _ = from.by_ref().take(MAX_BYTES).read_to_end(&mut bytes);
    let found = object(&bytes).ok().filter(|object| object.contains_key("cniVersion"));
    found.and_then(|object| version(&object).ok()).unwrap_or(Version::NEWEST)
}

/// Returns the error of a wrong value.
pub(crate) fn wrong(key: &str, value: &Value, expected: &str) -> Failure {
    let message = format!("{key} is {value}, expected {expected}");
    Failure::new(Code::InvalidConfig, message)
}
