//! The layout of a fleet's keys in etcd.
//!
//! | key, after the prefix and `/v1` | value |
//! | --- | --- |
//! | `/hosts/HOST` | a host's address and public key |
//! | `/alive/HOST` | the same while the host lives, under its lease |
//! | `/ports/HOST/PORT` | a port of a host, as in its file |
//! | `/port-policies/HOST/NAME` | the security groups of a host's ports that are added by command |
//! | `/networks/VNI/settings` | a network |
//! | `/networks/VNI/machines/MAC` | the host of a machine, and its addresses |
//! | `/networks/VNI/routes/PREFIX` | the next hop of a prefix, which is written with `_` for `/` |
//! | `/policies/acl/NAME`, `/policies/security-group/NAME`, `/policies/set/NAME`, `/policies/connections` | policies |
//!
//! A host reads `/ports` and `/port-policies` of its own, `/hosts`, `/policies`, and each network of its ports. A port and its machine are written
//! in one transaction: the host reads the first, the others the second.

use std::fmt;

use weft_vpc::{Prefix, Vni};

use crate::config::Mac;

/// The version of the layout and of the values.
const VERSION: &str = "v1";

/// An object of a fleet. Objects of which others have the names come first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A set of prefixes.
    Set(String),
    /// A security group.
    SecurityGroup(String),
    /// An access list.
    Acl(String),
    /// The limits of tracked connections.
    Connections,
    /// A host.
    Host(String),
    /// A host that lives.
    Alive(String),
    /// A network.
    Network(u32),
    /// The place of a machine.
    Machine(u32, Mac),
    /// The next hop of a prefix.
    Route(u32, Prefix),
    /// A port, by its host and its name.
    Port(String, String),
    /// The policies of ports that are added by command, by their host and a name.
    PortPolicies(String, String),
}

/// The error of a key that no object has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no key of a fleet's object: see `weft fleet list`")]
pub struct KeyError(pub String);

/// Returns `true` if a text can be the name of a host, a port or a policy in a key.
pub(super) fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=63).contains(&text.len()) && text.chars().all(allowed)
}

impl Key {
    /// Returns the key in etcd.
    pub fn path(&self, prefix: &str) -> String {
        format!("{prefix}/{VERSION}/{self}")
    }

    /// Parses a key of etcd.
    ///
    /// # Errors
    /// The key is not below the prefix, or is none of an object.
    pub fn parse(prefix: &str, path: &[u8]) -> Result<Self, KeyError> {
        let wrong = || KeyError(String::from_utf8_lossy(path).into_owned());
        let text = std::str::from_utf8(path).map_err(|_| wrong())?;
        let text = text.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/'));
        let text = text.and_then(|rest| rest.strip_prefix(VERSION)?.strip_prefix('/'));
        text.and_then(|text| text.parse().ok()).ok_or_else(wrong)
    }

    /// Returns the prefix of the keys of a host's ports.
    pub fn ports_of(prefix: &str, host: &str) -> String {
        format!("{prefix}/{VERSION}/ports/{host}/")
    }

    /// Returns the prefix of the keys of the policies of a host's ports that are added by command.
    pub fn port_policies_of(prefix: &str, host: &str) -> String {
        format!("{prefix}/{VERSION}/port-policies/{host}/")
    }

    /// Returns the prefix of the keys of a network.
    pub fn network(prefix: &str, vni: u32) -> String {
        format!("{prefix}/{VERSION}/networks/{vni}/")
    }

    /// Returns the prefix of the keys of a network's machines.
    pub fn machines(prefix: &str, vni: u32) -> String {
        format!("{prefix}/{VERSION}/networks/{vni}/machines/")
    }

    /// Returns the prefix of the keys of all objects of a kind: `hosts`, `alive`, `ports`, `port-policies`, `networks` or
    /// `policies`.
    pub fn all(prefix: &str, kind: &str) -> String {
        format!("{prefix}/{VERSION}/{kind}/")
    }

    /// Returns the network that it is in, if it is in one.
    pub const fn vni(&self) -> Option<u32> {
        match self {
            Self::Network(vni) | Self::Machine(vni, _) | Self::Route(vni, _) => Some(*vni),
            _ => None,
        }
    }

    /// Returns its kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Host(_) => "hosts",
            Self::Alive(_) => "alive",
            Self::Port(..) => "ports",
            Self::PortPolicies(..) => "port-policies",
            Self::Network(_) => "networks",
            Self::Machine(..) => "machines",
            Self::Route(..) => "routes",
            _ => "policies",
        }
    }

    /// Returns `true` if it is a policy.
    pub const fn is_policy(&self) -> bool {
        matches!(self, Self::Set(_) | Self::SecurityGroup(_) | Self::Acl(_) | Self::Connections)
    }
}

/// Writes the key after the prefix and the version.
impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) => write!(out, "hosts/{name}"),
            Self::Alive(name) => write!(out, "alive/{name}"),
            Self::Port(host, name) => write!(out, "ports/{host}/{name}"),
            Self::PortPolicies(host, name) => write!(out, "port-policies/{host}/{name}"),
            Self::Network(vni) => write!(out, "networks/{vni}/settings"),
            Self::Machine(vni, mac) => write!(out, "networks/{vni}/machines/{mac}"),
            Self::Route(vni, to) => {
                write!(out, "networks/{vni}/routes/{}_{}", to.address(), to.bits())
            }
            Self::Acl(name) => write!(out, "policies/acl/{name}"),
            Self::SecurityGroup(name) => write!(out, "policies/security-group/{name}"),
            Self::Set(name) => write!(out, "policies/set/{name}"),
            Self::Connections => write!(out, "policies/connections"),
        }
    }
}

/// Parses the key after the prefix and the version. Only the form that is written is accepted, so that no two keys are
/// of one object.
impl std::str::FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let parts: Vec<_> = text.split('/').collect();
        let vni = |text: &str| text.parse().ok().filter(|&number| Vni::new(number).is_some());
        let name = |text: &str| is_name(text).then(|| text.to_owned());
        let parsed = match parts[..] {
            ["hosts", host] => name(host).map(Self::Host),
            ["alive", host] => name(host).map(Self::Alive),
            ["ports", host, port] => name(host).zip(name(port)).map(|(a, b)| Self::Port(a, b)),
            ["port-policies", host, of] => {
                name(host).zip(name(of)).map(|(a, b)| Self::PortPolicies(a, b))
            }
            ["networks", number, "settings"] => vni(number).map(Self::Network),
            ["networks", number, "machines", mac] => {
                vni(number).zip(mac.parse().ok()).map(|(vni, mac)| Self::Machine(vni, mac))
            }
            ["networks", number, "routes", to] => {
                let to = to.replace('_', "/").parse().ok();
                vni(number).zip(to).map(|(vni, to)| Self::Route(vni, to))
            }
            ["policies", "acl", list] => name(list).map(Self::Acl),
            ["policies", "security-group", group] => name(group).map(Self::SecurityGroup),
            ["policies", "set", set] => name(set).map(Self::Set),
            ["policies", "connections"] => Some(Self::Connections),
            _ => None,
        };
        let is_written = |key: &Self| key.to_string() == text;
        parsed.filter(is_written).ok_or_else(|| KeyError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        let mac: Mac = "02:00:00:00:07:01".parse().unwrap();
        for (key, text) in [
            (Key::Host("h1".into()), "/weft/v1/hosts/h1"),
            (Key::Alive("h1.example".into()), "/weft/v1/alive/h1.example"),
            (Key::Port("h1".into(), "web".into()), "/weft/v1/ports/h1/web"),
            (Key::PortPolicies("h1".into(), "a.b".into()), "/weft/v1/port-policies/h1/a.b"),
            (Key::Network(100), "/weft/v1/networks/100/settings"),
            (Key::Machine(100, mac), "/weft/v1/networks/100/machines/02:00:00:00:07:01"),
            (
                Key::Route(100, "10.9.0.0/16".parse().unwrap()),
                "/weft/v1/networks/100/routes/10.9.0.0_16",
            ),
            (
                Key::Route(7, "2001:db8::1".parse().unwrap()),
                "/weft/v1/networks/7/routes/2001:db8::1_128",
            ),
            (Key::Acl("edge".into()), "/weft/v1/policies/acl/edge"),
            (Key::SecurityGroup("web".into()), "/weft/v1/policies/security-group/web"),
            (Key::Set("web".into()), "/weft/v1/policies/set/web"),
            (Key::Connections, "/weft/v1/policies/connections"),
        ] {
            assert_eq!(key.path("/weft"), text);
            assert_eq!(Key::parse("/weft", text.as_bytes()), Ok(key));
        }
    }

    #[test]
    fn other_forms_of_a_key_are_refused() {
        for text in [
            "/weft/v2/hosts/h1",
            "/weft/v1/hosts/",
            "/weft/v1/hosts/a/b",
            "/weft/v1/hosts/a b",
            "/weft/v1/networks/0100/settings",
            "/weft/v1/networks/16777216/settings",
            "/weft/v1/networks/100/machines/02-00-00-00-07-01",
            "/weft/v1/networks/100/machines/02:00:00:00:07:0A",
            "/weft/v1/networks/100/routes/10.9.0.0",
            "/weft/v1/networks/100/routes/10.9.0.1_16",
            "/weft/v1/policies/rule/a",
            "/other/v1/hosts/h1",
            "/weft/v1/hosts/\u{e9}",
        ] {
            assert!(Key::parse("/weft", text.as_bytes()).is_err(), "{text}");
        }
        assert!(Key::parse("/weft", b"/weft/v1/hosts/\xff").is_err());
    }
}
