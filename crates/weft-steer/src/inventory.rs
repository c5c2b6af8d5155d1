//! The routers, the commands that reach them, and their cables, which tables do not contain.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_route::installed::Cable;
use weft_units::{BitRate, unknown_name};

use crate::{GnmiSettings, InventoryError, Refusal, SteerError};

/// The routers of a fabric.
///
/// ```
/// let text = r#"
/// [[router]]
/// name = "leaf-0"
/// reach = ["ssh", "-oBatchMode=yes", "leaf-0"]
/// agent = "10.0.0.1"
///
/// [[router.port]]
/// name = "swp1"
/// speed = "100Gbps"
/// to.host = "10.1.0.2"
/// "#;
/// let inventory: weft_steer::Inventory = toml::from_str(text)?;
/// assert_eq!(inventory.routers[0].ports[0].name, "swp1");
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    /// The routers; their names are distinct.
    #[serde(rename = "router", default)]
    pub routers: Vec<RouterEntry>,
}

/// A router that runs Linux or a gNMI server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouterEntry {
    /// The router's name.
    pub name: String,
    /// The words before a command that run it on the router: none for this machine,
    /// `["ip", "netns", "exec", NAME]` for a namespace of it, `["ssh", HOST]` for another one.
    #[serde(default)]
    pub reach: Vec<String>,
    /// The agent address in the datagrams of the router's sFlow agent.
    pub agent: IpAddr,
    /// The source addresses of the agent's datagrams, if they are not just `agent`. Other sources are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<IpAddr>,
    /// The method by which moves are applied.
    #[serde(default)]
    pub apply: Method,
    /// Its ports. Interfaces that are not listed are on no path.
    #[serde(rename = "port", default)]
    pub ports: Vec<PortEntry>,
}

/// The method by which a router is made to send a destination to other next hops.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Method {
    /// A route for one address in the kernel, protocol 200. The kernel removes it with the last of its links.
    #[default]
    Kernel,
    /// FRR filters the destination from neighbours with an inbound route-map. Needs the address (a /32 or /128) in BGP.
    Frr {
        /// The folder of FRR's sockets; by default Debian's.
        #[serde(default)]
        vty_socket: Option<PathBuf>,
    },
    /// A static route for one address in the configuration of a gNMI server, which is also read instead of a kernel. `reach` leads
    /// to the host that keeps the router's lease.
    Gnmi(Box<GnmiSettings>),
}

/// A port of a router and its cable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortEntry {
    /// The interface's name.
    pub name: String,
    /// The rate of the port; by default that of the interface.
    #[serde(default)]
    pub speed: Option<BitRate>,
    /// The other end of its cable; may be omitted if the other end names it.
    #[serde(default)]
    pub to: Option<Cable>,
}

impl Inventory {
    /// Reads an inventory from a TOML file and checks it.
    ///
    /// # Errors
    /// Returns `Read`, or `Config` with the line or the wrong name.
    pub fn read(path: &Path) -> Result<Self, SteerError> {
        let text = fs::read_to_string(path)
            .map_err(|source| SteerError::Read { path: path.to_owned(), source })?;
        let wrong = |reason| SteerError::Config { path: path.to_owned(), reason };
        let inventory: Self = toml::from_str(&text).map_err(|error| wrong(error.into()))?;
        inventory.check().map_err(|error| wrong(error.into()))?;
        Ok(inventory)
    }

    /// Checks names and addresses.
    ///
    /// # Errors
    /// Returns the router and its fault.
    pub fn check(&self) -> Result<(), InventoryError> {
        use InventoryError::{
            Agent, Gnmi, Interface, NoRouter, Port, RouterName, RouterTwice, Source,
        };
        let (mut names, mut agents) = (BTreeSet::new(), BTreeSet::new());
        for router in &self.routers {
            let name = &router.name;
            if !names.insert(name) {
                return Err(RouterTwice(name.clone()));
            }
            // The name becomes the name of a file.
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
                return Err(RouterName(name.clone()));
            }
            if !agents.insert(router.agent) {
                return Err(Agent { router: name.clone(), agent: router.agent });
            }
            let is_no_source = |it: &&IpAddr| it.is_unspecified() || it.is_multicast();
            if let Some(&source) = router.sources.iter().find(is_no_source) {
                return Err(Source { router: name.clone(), source_address: source });
            }
            if let Method::Gnmi(settings) = &router.apply {
                settings.check().map_err(|fault| Gnmi { router: name.clone(), fault })?;
            }
            let mut ports = BTreeSet::new();
            for port in &router.ports {
                if !ports.insert(&port.name) {
                    return Err(Port { router: name.clone(), port: port.name.clone() });
                }
                // Port names become words of commands.
                if !is_interface(&port.name) && !matches!(router.apply, Method::Gnmi(_)) {
                    return Err(Interface { router: name.clone(), port: port.name.clone() });
                }
            }
        }
        if self.routers.is_empty() {
            return Err(NoRouter);
        }
        Ok(())
    }

    /// Returns the router of that name.
    ///
    /// # Errors
    /// Returns `Refused` with the nearest known name.
    pub fn router(&self, name: &str) -> Result<&RouterEntry, SteerError> {
        let known: Vec<&str> = self.routers.iter().map(|router| router.name.as_str()).collect();
        let unknown = || SteerError::Refused {
            router: name.into(),
            reason: Refusal::UnknownRouter(unknown_name("router", name, &known)),
        };
        self.routers.iter().find(|router| router.name == name).ok_or_else(unknown)
    }
}

impl RouterEntry {
    /// Returns the source addresses of its agent's datagrams.
    pub fn sources(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let agent = self.sources.is_empty().then_some(self.agent);
        self.sources.iter().copied().chain(agent)
    }
}

/// Returns `true` if the name is valid for an interface and is a plain word in a shell.
pub(crate) fn is_interface(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    (1..=15).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ConfigError;

    fn inventory(text: &str) -> Result<Inventory, ConfigError> {
        let inventory: Inventory = toml::from_str(text)?;
        inventory.check()?;
        Ok(inventory)
    }

    #[test]
    fn an_invalid_inventory_is_refused_with_the_fault() {
        let router = |name: &str, agent: &str, port: &str| {
            format!(
                "[[router]]\nname = '{name}'\nagent = '{agent}'\n[[router.port]]\nname = '{port}'\n"
            )
        };
        let good = router("l0", "10.0.0.1", "swp1");
        assert!(inventory(&good).is_ok());
        for (second, words) in [
            (router("l0", "10.0.0.2", "swp1"), "\"l0\" occurs twice"),
            (router("l1", "10.0.0.1", "swp1"), "another router also has the agent 10.0.0.1"),
            (router("l1", "10.0.0.2", "s; reboot"), "is no interface name"),
            (
                "[[router]]\nname = 'l1'\nagent = '1.1.1.1'\nsources = ['0.0.0.0']".into(),
                "no host sends from its source 0.0.0.0",
            ),
            ("[[router]]\nname = 'l1'\n".into(), "agent"),
            (
                "[[router]]\nname = 'l1'\nagent = '1.1.1.1'\napply.gnmi.address = 'l1'".into(),
                "router \"l1\": apply.gnmi: address \"l1\" is not HOST:PORT",
            ),
            ("[[router]]\nname = 'l1'\nagent = '1.1.1.1'\ncolour = 1".into(), "colour"),
        ] {
            let error = inventory(&(good.clone() + &second)).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert_eq!(inventory(""), Err(InventoryError::NoRouter.into()));
    }
}
