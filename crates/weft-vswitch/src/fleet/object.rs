//! The values of a fleet's keys: JSON objects, each checked by itself.

use std::collections::BTreeSet;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weft_seal::PublicKey;
use weft_vpc::{AclConfig, ConnectionsConfig, Prefix, SecurityGroupConfig};

use super::Key;
use super::key::is_name;
use super::port_policies::PortPoliciesObject;
use crate::config::{ConfigError, Network, Port, value};

/// Maximum bytes of a value.
const MAX_VALUE: usize = 1 << 20;

/// A host of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Host {
    /// Its address in the network that carries the overlay.
    pub address: IpAddr,
    /// The public key by which other hosts know it, 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
}

/// A host that lives. The key is deleted with the host's lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Alive {
    /// Its address in the network that carries the overlay.
    pub address: IpAddr,
    /// The version of its daemon.
    pub version: String,
    /// The process of its daemon.
    pub pid: u32,
}

/// A network. Its hosts are those of its machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct NetworkObject {
    /// `true` if lost frames are retransmitted.
    pub reliable: bool,
    /// `true` if tenants see frames in the order they were sent.
    pub in_order: bool,
    /// The gateway's address in each subnet, with its prefix length: `192.168.7.254/24`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
    /// The program that writes the network and removes it, such as a controller of Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

impl Default for NetworkObject {
    fn default() -> Self {
        Self { reliable: true, in_order: true, gateways: vec![], owner: None }
    }
}

/// The place of a machine: a host of the fleet, or another host's address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Machine {
    /// The name of its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The address of its host, which is not of the fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<IpAddr>,
    /// Its own IP addresses.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub addresses: BTreeSet<IpAddr>,
    /// `true` if the host has written it by itself, of a port of its file or one added by command.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_host: bool,
}

/// The next hop of a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RouteObject {
    /// The address of a machine in the same network.
    pub via: IpAddr,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Object {
    /// A host.
    Host(Host),
    /// A host that lives.
    Alive(Alive),
    /// A port, as in a host's file.
    Port(Box<Port>),
    /// The security groups of ports that are added by command.
    PortPolicies(PortPoliciesObject),
    /// A network.
    Network(NetworkObject),
    /// The place of a machine.
    Machine(Machine),
    /// The next hop of a prefix.
    Route(RouteObject),
    /// An access list.
    Acl(AclConfig),
    /// A security group.
    SecurityGroup(SecurityGroupConfig),
    /// A set of prefixes.
    Set(Vec<Prefix>),
    /// The limits of tracked connections.
    Connections(ConnectionsConfig),
}

/// The reason that a value is refused.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The value is too long.
    #[error("the value has {0} bytes, expected {MAX_VALUE} at most")]
    TooLong(usize),
    /// The value is no JSON, or lacks fields, or has others.
    #[error("{0}")]
    Malformed(#[from] serde_json::Error),
    /// A field is invalid.
    #[error("{0}")]
    Value(#[from] ConfigError),
}

impl Object {
    /// Reads the value of a key, and checks it by itself.
    ///
    /// # Errors
    /// The reason, with the field.
    pub fn parse(key: &Key, value: &[u8]) -> Result<Self, ObjectError> {
        if value.len() > MAX_VALUE {
            return Err(ObjectError::TooLong(value.len()));
        }
        let object = match key {
            Key::Host(_) => Self::Host(json(value)?),
            Key::Alive(_) => Self::Alive(json(value)?),
            Key::Port(..) => Self::Port(json(value)?),
            Key::PortPolicies(..) => Self::PortPolicies(json(value)?),
            Key::Network(_) => Self::Network(json(value)?),
            Key::Machine(..) => Self::Machine(json(value)?),
            Key::Route(..) => Self::Route(json(value)?),
            Key::Acl(_) => Self::Acl(json(value)?),
            Key::SecurityGroup(_) => Self::SecurityGroup(json(value)?),
            Key::Set(_) => Self::Set(json(value)?),
            Key::Connections => Self::Connections(json(value)?),
        };
        object.check(key)?;
        Ok(object)
    }

    /// Checks that the value fits its key, and what its types do not.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn check(&self, key: &Key) -> Result<(), ConfigError> {
        let same = |field: &str, got: &str, expected: &str| match got == expected {
            true => Ok(()),
            false => Err(value(field, got, format!("{expected}, as in the key"))),
        };
        match (self, key) {
            (Self::Host(host), _) => {
                let Some(text) = &host.identity else { return Ok(()) };
                let parsed = text.parse::<PublicKey>().map(drop);
                parsed.map_err(|error| value("identity", text, error.to_string()))
            }
            (Self::Port(port), Key::Port(_, name)) => {
                same("name", &port.name, name)?;
                port.check()?;
                port.policies.check().map_err(|error| value("port", name, error.to_string()))
            }
            (Self::PortPolicies(policies), _) if policies.labels.is_empty() => {
                Err(value("labels", "{}", "one label or more"))
            }
            (Self::Network(network), Key::Network(vni)) => {
                network.network(*vni, BTreeSet::new()).gateways().map(drop)
            }
            (Self::Machine(machine), _) => match (&machine.host, machine.peer) {
                (Some(host), None) if is_name(host) => Ok(()),
                (Some(host), None) => Err(value("host", host, "the name of a host")),
                (None, Some(_)) => Ok(()),
                _ => Err(value("host", "both or none", "either `host` or `peer`")),
            },
            (Self::Acl(acl), Key::Acl(name)) => same("name", &acl.name, name),
            (Self::SecurityGroup(group), Key::SecurityGroup(name)) => {
                same("name", &group.name, name)
            }
            _ => Ok(()),
        }
    }

    /// Returns the value as it is written.
    pub fn json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an object has no map with other keys than strings")
    }
}

impl NetworkObject {
    /// Returns the network of a host whose peers are these. Frames for unknown machines are dropped in it: all machines
    /// are in etcd.
    pub fn network(&self, vni: u32, peers: BTreeSet<IpAddr>) -> Network {
        let Self { reliable, in_order, gateways, owner: _ } = self.clone();
        let (evpn, route_targets) = (false, vec![]);
        Network { vni, reliable, in_order, flood: false, peers, gateways, evpn, route_targets }
    }
}

fn json<T: DeserializeOwned>(value: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = "networks/100/machines/02:00:00:00:07:01";

    fn read(key: &str, value: &str) -> Result<Object, String> {
        let object = Object::parse(&key.parse().unwrap(), value.as_bytes());
        object.map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_read_as_they_are_written() {
        for (key, value) in [
            ("hosts/h1", r#"{"address":"10.1.0.2"}"#),
            ("alive/h1", r#"{"address":"10.1.0.2","version":"0.1.0","pid":7}"#),
            ("networks/100/settings", r#"{"reliable":true,"in-order":false}"#),
            (MACHINE, r#"{"host":"h1","addresses":["192.168.7.1"]}"#),
            (MACHINE, r#"{"peer":"10.2.0.2"}"#),
            (MACHINE, r#"{"host":"h1","by-host":true}"#),
            ("port-policies/h1/a", r#"{"vni":100,"labels":{"uid":"7"},"security-groups":["web"]}"#),
            ("networks/7/settings", r#"{"reliable":true,"in-order":true,"owner":"k8s.prod"}"#),
            ("networks/100/routes/10.9.0.0_16", r#"{"via":"192.168.7.1"}"#),
            ("policies/set/web", r#"["10.0.0.0/8"]"#),
        ] {
            assert_eq!(String::from_utf8(read(key, value).unwrap().json()).unwrap(), value);
        }
        let port = r#"{"name":"web","vni":100,"mac":"02:00:00:00:07:01","addresses":["192.168.7.1/24"],"tap":{"interface":"eth0"}}"#;
        let object = read("ports/h1/web", port).unwrap();
        assert_eq!(
            Object::parse(&"ports/h1/web".parse().unwrap(), &object.json()).unwrap(),
            object
        );
        let acl = r#"{"name":"edge","rules":["deny ingress tcp to any port 22"]}"#;
        assert!(read("policies/acl/edge", acl).is_ok());
    }

    #[test]
    fn bad_values_name_the_field() {
        for (key, value, words) in [
            ("hosts/h1", "", "EOF"),
            ("hosts/h1", "{}", "missing field `address`"),
            ("hosts/h1", r#"{"address":"10.1.0.2","port":1}"#, "unknown field `port`"),
            ("hosts/h1", r#"{"address":"10.1.0.2","identity":"ab"}"#, "identity = ab"),
            (
                "networks/100/settings",
                r#"{"gateways":["10.0.0.1"]}"#,
                "network.gateways = 10.0.0.1",
            ),
            ("port-policies/h1/a", r#"{"vni":100,"labels":{}}"#, "one label or more"),
            (MACHINE, "{}", "either `host` or `peer`"),
            (MACHINE, r#"{"host":"h1","peer":"10.2.0.2"}"#, "either `host` or `peer`"),
            (MACHINE, r#"{"host":"h 1"}"#, "host = h 1"),
            ("policies/acl/edge", r#"{"name":"core"}"#, "name = core: expected edge"),
            ("policies/acl/edge", r#"{"name":"edge","rules":["drop all"]}"#, "drop"),
            (
                "ports/h1/web",
                r#"{"name":"web","vni":16777216,"mac":"02:00:00:00:07:01","tap":{"interface":"eth0"}}"#,
                "16777215",
            ),
            ("ports/h1/web", r#"{"name":"web","vni":1,"mac":"02:00:00:00:07:01"}"#, "`tap`"),
        ] {
            let error = read(key, value).unwrap_err();
            assert!(error.contains(words), "{key} {value}: {error}");
        }
        assert!(read("policies/set/a", &"[".repeat(MAX_VALUE)).is_err(), "a deep value");
        let long = " ".repeat(MAX_VALUE + 1);
        assert!(read("policies/set/a", &long).unwrap_err().contains("1048576 at most"));
    }
}
