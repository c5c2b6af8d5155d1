//! A file of a fleet's objects, for commands: as a host's file, but that networks name no peers and each port its host.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_vpc::{ConnectionsConfig, Policies};

use super::object::{Machine, NetworkObject, RouteObject};
use super::{Key, Object};
use crate::config::{Config, ConfigError, Port, Route, Row, value};

/// A file of objects: `weft fleet put FILE`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct FleetFile {
    /// Tenants' networks.
    #[serde(rename = "network")]
    pub networks: Vec<NetworkRow>,
    /// Tenants' interfaces, each with its host.
    #[serde(rename = "port")]
    pub ports: Vec<FleetPort>,
    /// The places of machines outside the fleet, and the next hops of prefixes.
    #[serde(rename = "route")]
    pub routes: Vec<Route>,
    /// Access lists and security groups that ports name.
    #[serde(flatten)]
    pub policies: Policies,
}

/// A network of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NetworkRow {
    /// The network's number, 24 bits.
    pub vni: u32,
    /// `true` if lost frames are retransmitted.
    #[serde(default = "yes")]
    pub reliable: bool,
    /// `true` if tenants see frames in the order they were sent.
    #[serde(default = "yes")]
    pub in_order: bool,
    /// The gateway's address in each subnet, with its prefix length: `192.168.7.254/24`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
}

/// A port of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(deny_unknown_fields)]
pub struct FleetPort {
    /// The name of its host.
    pub host: String,
    /// The port, as in the host's file.
    #[serde(flatten)]
    pub port: Port,
}

const fn yes() -> bool {
    true
}

impl FleetFile {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or has keys or values that no object has.
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(file)
            .map_err(|cause| ConfigError::Unreadable { file: file.into(), cause })?;
        let malformed = |cause| ConfigError::Malformed { file: file.into(), cause };
        toml::from_str(&text).map_err(malformed)
    }

    /// Returns the objects of a host's own file, whose name in the fleet is `host`. Peers and the places of machines on
    /// them are left out: the fleet's hosts find each other.
    pub fn import(config: &Config, host: &str) -> Self {
        let network = |it: &crate::config::Network| NetworkRow {
            vni: it.vni,
            reliable: it.reliable,
            in_order: it.in_order,
            gateways: it.gateways.clone(),
        };
        let port = |port: &Port| FleetPort { host: host.to_owned(), port: port.clone() };
        let is_prefix = |route: &&Route| matches!(route.row, Row::Prefix { .. });
        Self {
            networks: config.networks.iter().map(network).collect(),
            ports: config.ports.iter().map(port).collect(),
            routes: config.routes.iter().filter(is_prefix).cloned().collect(),
            policies: config.policies.clone(),
        }
    }

    /// Returns the objects by key: of a port also the place of its machine.
    ///
    /// # Errors
    /// Two tables are of one object, or a value is invalid.
    pub fn objects(&self) -> Result<BTreeMap<Key, Object>, ConfigError> {
        let mut objects = BTreeMap::new();
        for row in &self.networks {
            let NetworkRow { vni, reliable, in_order, gateways } = row.clone();
            let network = NetworkObject { reliable, in_order, gateways, owner: None };
            add(&mut objects, Key::Network(vni), Object::Network(network))?;
        }
        for FleetPort { host, port } in &self.ports {
            let (key, machine) = (Key::Port(host.clone(), port.name.clone()), machine(host, port)?);
            add(&mut objects, key, Object::Port(Box::new(port.clone())))?;
            add(&mut objects, Key::Machine(port.vni, port.mac), Object::Machine(machine))?;
        }
        for Route { vni, row } in &self.routes {
            let (key, object) = match row.clone() {
                Row::Machine { mac, peer, addresses } => {
                    let machine = Machine { peer: Some(peer), addresses, ..Machine::default() };
                    (Key::Machine(*vni, mac), Object::Machine(machine))
                }
                Row::Prefix { to, via } => {
                    (Key::Route(*vni, to), Object::Route(RouteObject { via }))
                }
            };
            add(&mut objects, key, object)?;
        }
        let Policies { sets, acls, security_groups, connections } = &self.policies;
        for (name, set) in sets {
            add(&mut objects, Key::Set(name.clone()), Object::Set(set.clone()))?;
        }
        for acl in acls {
            add(&mut objects, Key::Acl(acl.name.clone()), Object::Acl(acl.clone()))?;
        }
        for group in security_groups {
            let key = Key::SecurityGroup(group.name.clone());
            add(&mut objects, key, Object::SecurityGroup(group.clone()))?;
        }
        if *connections != ConnectionsConfig::default() {
            add(&mut objects, Key::Connections, Object::Connections(*connections))?;
        }
        Ok(objects)
    }
}

/// Returns the place of a port's machine.
///
/// # Errors
/// An address is invalid.
pub(super) fn machine(host: &str, port: &Port) -> Result<Machine, ConfigError> {
    let addresses = port.prefixes()?.into_iter().map(|(address, _): (IpAddr, u8)| address);
    let (host, addresses) = (Some(host.to_owned()), addresses.collect());
    Ok(Machine { host, addresses, ..Machine::default() })
}

fn add(objects: &mut BTreeMap<Key, Object>, key: Key, object: Object) -> Result<(), ConfigError> {
    object.check(&key)?;
    // The names of a file are not those of keys yet.
    let text = key.to_string();
    if text.parse::<Key>().is_err() {
        return Err(value("name", text, "letters, digits, dots, hyphens and underscores"));
    }
    if objects.insert(key, object).is_some() {
        return Err(value("name", text, "one table of an object at most"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: &str = "[[port]]\nhost = 'h1'\nname = 'web'\nvni = 100\nmac = '02:00:00:00:07:01'\n\
                        addresses = ['192.168.7.1/24']\ntap = { interface = 'eth0' }\n";

    fn keys(text: &str) -> Result<Vec<String>, String> {
        let file: FleetFile = toml::from_str(text).map_err(|error| error.to_string())?;
        let objects = file.objects().map_err(|error| error.to_string())?;
        Ok(objects.keys().map(ToString::to_string).collect())
    }

    #[test]
    fn a_file_has_the_objects_of_its_tables() {
        let text = format!(
            "{PORT}[[network]]\nvni = 100\n[[route]]\nvni = 100\nto = '10.9.0.0/16'\nvia = '192.168.7.1'\n\
             [[route]]\nvni = 100\nmac = '02:00:00:00:07:09'\npeer = '10.4.0.2'\n[set]\nweb = ['10.0.0.0/8']\n\
             [[acl]]\nname = 'edge'\n"
        );
        assert_eq!(
            keys(&text).unwrap(),
            [
                "policies/set/web",
                "policies/acl/edge",
                "networks/100/settings",
                "networks/100/machines/02:00:00:00:07:01",
                "networks/100/machines/02:00:00:00:07:09",
                "networks/100/routes/10.9.0.0_16",
                "ports/h1/web"
            ]
        );
    }

    #[test]
    fn two_tables_of_an_object_and_bad_names_are_refused() {
        let other = PORT.replace("'web'", "'db'");
        let error = keys(&format!("{PORT}{other}")).unwrap_err();
        assert!(
            error.contains("machines/02:00:00:00:07:01") && error.contains("at most"),
            "{error}"
        );
        assert!(keys(&PORT.replace("'web'", "'a/b'")).unwrap_err().contains("a/b"));
        assert!(keys(&PORT.replace("host = 'h1'\n", "")).unwrap_err().contains("host"));
        assert!(keys(&PORT.replace("host =", "colour =")).is_err());
        assert!(keys("[[network]]\nvni = 1\npeers = []\n").unwrap_err().contains("peers"));
    }
}
