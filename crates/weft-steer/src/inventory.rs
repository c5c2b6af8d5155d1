//! Which routers there are, how they are reached, and how they are cabled: what tables do not tell.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weft_lab::{Lab, NodeKind, Routing};
use weft_route::installed::{Addresses, Cable};
use weft_units::{BitRate, unknown_name};

use crate::SteerError;

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    /// The routers; their names are distinct.
    #[serde(rename = "router", default)]
    pub routers: Vec<RouterEntry>,
}

/// A router that runs Linux.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterEntry {
    /// What it is called.
    pub name: String,
    /// What is put before a command to run it on the router: nothing for this machine,
    /// `["ip", "netns", "exec", NAME]` for a namespace of it, `["ssh", HOST]` for another one.
    #[serde(default)]
    pub reach: Vec<String>,
    /// The address that the router's sFlow agent calls itself by.
    pub agent: IpAddr,
    /// The addresses that the agent's datagrams come from, where `agent` is not the only one. Others are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<IpAddr>,
    /// How moves are applied.
    #[serde(default)]
    pub apply: Method,
    /// Its ports. Interfaces that are not named here belong to nobody's path.
    #[serde(rename = "port", default)]
    pub ports: Vec<PortEntry>,
}

/// How a router is made to send a destination elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Method {
    /// A route for one address in the kernel, protocol 200. The kernel removes it with the last of its links.
    #[default]
    Kernel,
    /// FRR keeps neighbours from announcing the destination: an inbound route-map. Needs the address (a /32 or /128) in BGP.
    Frr {
        /// The folder of FRR's sockets; where Debian has them, if not given.
        #[serde(default)]
        vty_socket: Option<PathBuf>,
    },
}

/// A port of a router and its cable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortEntry {
    /// The interface's name.
    pub name: String,
    /// What it can send; as the interface says, if not given.
    #[serde(default)]
    pub speed: Option<BitRate>,
    /// Where its cable ends; may be left out where the other end names it.
    #[serde(default)]
    pub to: Option<Cable>,
}

/// What a veth pair without a rate limit is taken for: what Linux says of one.
const UNLIMITED: BitRate = BitRate::gbps(10).expect("ten is not zero");

impl Inventory {
    /// Reads an inventory from a TOML file and checks it.
    ///
    /// # Errors
    /// `Read`; `Config` with the line, or with the name that is wrong.
    pub fn read(path: &Path) -> Result<Self, SteerError> {
        let text = fs::read_to_string(path)
            .map_err(|source| SteerError::Read { path: path.to_owned(), source })?;
        let wrong = |reason| SteerError::Config { path: path.to_owned(), reason };
        let inventory: Self = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        inventory.check().map_err(wrong)?;
        Ok(inventory)
    }

    /// What is wrong with names and addresses, if anything.
    ///
    /// # Errors
    /// The router and what is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        let (mut names, mut agents) = (BTreeSet::new(), BTreeSet::new());
        for router in &self.routers {
            let name = &router.name;
            if !names.insert(name) {
                return Err(format!("router {name:?} stands twice"));
            }
            // It becomes the name of a file.
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
                return Err(format!("router {name:?}: a name has letters, digits and -_. only"));
            }
            if !agents.insert(router.agent) {
                return Err(format!("router {name:?}: another has the agent {} too", router.agent));
            }
            let is_no_source = |it: &&IpAddr| it.is_unspecified() || it.is_multicast();
            if let Some(wrong) = router.sources.iter().find(is_no_source) {
                return Err(format!(
                    "router {name:?}: nothing is sent from {wrong}, one of its sources"
                ));
            }
            let mut ports = BTreeSet::new();
            for port in &router.ports {
                if !ports.insert(&port.name) {
                    return Err(format!("router {name:?}: port {:?} stands twice", port.name));
                }
                // Names become words of commands.
                if !is_interface(&port.name) {
                    return Err(format!("router {name:?}: {:?} names no interface", port.name));
                }
            }
        }
        if self.routers.is_empty() {
            return Err("no [[router]]: there is nothing to steer".into());
        }
        Ok(())
    }

    /// The routers of a lab, their cables, and rate limits as speeds.
    pub fn of_lab(lab: &Lab) -> Self {
        let fabric = lab.fabric();
        let mut ports: BTreeMap<usize, Vec<PortEntry>> = BTreeMap::new();
        for (link, state) in fabric.links.iter().zip(lab.links()) {
            let ends =
                [(&link.near, &link.far, &state.forward), (&link.far, &link.near, &state.backward)];
            for (port, other, impairment) in ends {
                let node = &fabric.nodes[other.node];
                let to = match node.kind {
                    NodeKind::Host => Cable::Host(match other.address6 {
                        Some(address6) => Addresses::both(other.address, address6),
                        None => other.address.into(),
                    }),
                    _ => Cable::Peer { router: node.name.clone(), port: other.device.clone() },
                };
                ports.entry(port.node).or_default().push(PortEntry {
                    name: port.device.clone(),
                    speed: Some(impairment.rate.unwrap_or(UNLIMITED)),
                    to: Some(to),
                });
            }
        }
        let routers = (fabric.hosts()..fabric.nodes.len()).map(|index| {
            let node = &fabric.nodes[index];
            RouterEntry {
                name: node.name.clone(),
                reach: ["ip", "netns", "exec", &node.namespace].map(String::from).to_vec(),
                agent: agent_of(index).into(),
                // One agent watches all routers, from this machine.
                sources: vec![Ipv4Addr::LOCALHOST.into()],
                apply: match lab.spec().routing {
                    Routing::Static => Method::Kernel,
                    Routing::Frr => Method::Frr { vty_socket: Some(lab.frr_folder(&node.name)) },
                },
                ports: ports.remove(&index).unwrap_or_default(),
            }
        });
        Self { routers: routers.collect() }
    }

    /// The router of that name.
    ///
    /// # Errors
    /// `Refused`, with the nearest name there is.
    pub fn router(&self, name: &str) -> Result<&RouterEntry, SteerError> {
        let known: Vec<&str> = self.routers.iter().map(|router| router.name.as_str()).collect();
        let unknown = || SteerError::Refused {
            router: name.into(),
            reason: unknown_name("router", name, &known),
        };
        self.routers.iter().find(|router| router.name == name).ok_or_else(unknown)
    }
}

impl RouterEntry {
    /// Returns the addresses that the datagrams of its agent come from.
    pub fn sources(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let agent = self.sources.is_empty().then_some(self.agent);
        self.sources.iter().copied().chain(agent)
    }
}

/// The agent's address of a lab's router: unique in the lab, and of no host.
pub(crate) fn agent_of(node: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0aff_0000 + u32::try_from(node).expect("a lab has fewer nodes"))
}

/// Whether the kernel takes it for an interface's name, and a shell for a word.
pub(crate) fn is_interface(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    (1..=15).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory(text: &str) -> Result<Inventory, String> {
        let inventory: Inventory = toml::from_str(text).map_err(|error| error.to_string())?;
        inventory.check().map(|()| inventory)
    }

    #[test]
    fn an_inventory_that_cannot_be_meant_is_refused_by_name() {
        let router = |name: &str, agent: &str, port: &str| {
            format!(
                "[[router]]\nname = '{name}'\nagent = '{agent}'\n[[router.port]]\nname = '{port}'\n"
            )
        };
        let good = router("l0", "10.0.0.1", "swp1");
        assert!(inventory(&good).is_ok());
        for (second, words) in [
            (router("l0", "10.0.0.2", "swp1"), "\"l0\" stands twice"),
            (router("l1", "10.0.0.1", "swp1"), "another has the agent 10.0.0.1 too"),
            (router("l1", "10.0.0.2", "s; reboot"), "names no interface"),
            (
                "[[router]]\nname = 'l1'\nagent = '1.1.1.1'\nsources = ['0.0.0.0']".into(),
                "nothing is sent from 0.0.0.0",
            ),
            ("[[router]]\nname = 'l1'\n".into(), "agent"),
            ("[[router]]\nname = 'l1'\nagent = '1.1.1.1'\ncolour = 1".into(), "colour"),
        ] {
            let error = inventory(&(good.clone() + &second)).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        assert!(inventory("").unwrap_err().contains("nothing to steer"));
    }
}
