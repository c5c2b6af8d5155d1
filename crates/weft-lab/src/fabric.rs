//! A lab as data: nodes, links, addresses and seeds, all computed from the specification.
//!
//! Host `j` of leaf `l` has the address `10.(l+1).j.2/24`, its leaf has `.1`, so a leaf owns `10.(l+1).0.0/16`. The
//! link of leaf `l` and spine `s` is `10.(100+l).s.0/30`, with the leaf at `.1`. With IPv6 these are
//! `fd00:(l+1):j::2/64`, `fd00:(l+1)::/32` and `fd00:(100+l):s::/64`, with the same decimal digits. Devices are named
//! after the node at the other end (`s0` on a leaf leads to spine 0); a host's one device is `eth0`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weft_units::{Seed, unknown_name};

use crate::{LabError, LabSpec};

/// The role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A host: it runs programs and has one port.
    Host,
    /// A leaf switch: it forwards between its hosts and the spines, and chooses a spine by hash.
    Leaf,
    /// A spine switch: it forwards between leaves.
    Spine,
}

/// A host or router: one network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The name, unique in the lab: `h0`, `l1`, `s3`.
    pub name: String,
    /// The network namespace, as `ip netns` names it.
    pub namespace: String,
    /// The role of the node.
    pub kind: NodeKind,
    /// The kernel's multipath hash seed in this namespace; never zero. Hosts do not use it.
    pub hash_seed: u32,
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The index of its node in [`Fabric::nodes`].
    pub node: usize,
    /// The device name inside the node's namespace.
    pub device: String,
    /// The IPv4 address.
    pub address: Ipv4Addr,
    /// The prefix length of its network.
    pub prefix_len: u8,
    /// The IPv6 address in a lab with IPv6; its network is a /64.
    pub address6: Option<Ipv6Addr>,
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    /// Returns the option that selects the family in `ip`.
    pub(crate) const fn flag(self) -> &'static str {
        match self {
            Self::V4 => "-4",
            Self::V6 => "-6",
        }
    }
}

impl Port {
    /// Returns the port's address of a family.
    ///
    /// # Panics
    /// Panics if the lab does not have the family.
    pub(crate) fn of(&self, family: Family) -> IpAddr {
        match family {
            Family::V4 => self.address.into(),
            Family::V6 => self.address6.expect("the lab has IPv6").into(),
        }
    }
}

/// A cable. `near` is the end further from the spines: the host or the leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The name: `h0-l0` or `l0-s1`.
    pub name: String,
    /// The host end of a host link, or the leaf end of a spine link.
    pub near: Port,
    /// The leaf end of a host link, or the spine end of a spine link.
    pub far: Port,
}

/// Every node and link of a lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fabric {
    /// The nodes: hosts by number, then leaves, then spines.
    pub nodes: Vec<Node>,
    /// The links: host links by host, then leaf–spine links by leaf and spine.
    pub links: Vec<Link>,
    leaves: usize,
    spines: usize,
    hosts_per_leaf: usize,
    ipv6: bool,
}

impl Fabric {
    /// Builds the fabric that `spec` describes.
    ///
    /// # Errors
    /// Returns `InvalidSpec` if a size is out of its range.
    pub fn new(spec: &LabSpec) -> Result<Self, LabError> {
        spec.validate()?;
        let &LabSpec { leaves, spines, hosts_per_leaf, ipv6, .. } = spec;
        let (nodes, links) = (vec![], vec![]);
        let mut fabric = Self { nodes, links, leaves, spines, hosts_per_leaf, ipv6 };
        let tiers = [
            (NodeKind::Host, leaves * hosts_per_leaf),
            (NodeKind::Leaf, leaves),
            (NodeKind::Spine, spines),
        ];
        for (kind, count) in tiers {
            fabric.nodes.extend((0..count).map(|index| node(spec, kind, index)));
        }
        for host in 0..fabric.hosts() {
            fabric.links.push(fabric.host_link(host));
        }
        for leaf in 0..leaves {
            for spine in 0..spines {
                fabric.links.push(fabric.spine_link(leaf, spine));
            }
        }
        Ok(fabric)
    }

    /// Returns the number of hosts.
    pub const fn hosts(&self) -> usize {
        self.leaves * self.hosts_per_leaf
    }

    /// Returns the number of leaves.
    pub const fn leaves(&self) -> usize {
        self.leaves
    }

    /// Returns the number of spines.
    pub const fn spines(&self) -> usize {
        self.spines
    }

    /// Returns the index of a host's leaf.
    pub const fn leaf_of(&self, host: usize) -> usize {
        host / self.hosts_per_leaf
    }

    /// Returns a host's IPv4 address.
    ///
    /// # Panics
    /// Panics if there is no such host.
    pub fn address(&self, host: usize) -> Ipv4Addr {
        assert!(host < self.hosts(), "host {host} of {}", self.hosts());
        self.links[host].near.address
    }

    /// Returns a host's IPv6 address; `None` in a lab without IPv6.
    ///
    /// # Panics
    /// Panics if there is no such host.
    pub fn address6(&self, host: usize) -> Option<Ipv6Addr> {
        assert!(host < self.hosts(), "host {host} of {}", self.hosts());
        self.links[host].near.address6
    }

    /// Returns the address families of the lab.
    pub(crate) fn families(&self) -> impl Iterator<Item = Family> + use<> {
        [Family::V4].into_iter().chain(self.ipv6.then_some(Family::V6))
    }

    /// Returns the IPv6 address with the last group `last` in a network of a leaf: that of a host, or that of a link to
    /// a spine. Returns `None` in a lab without IPv6.
    fn address6_in(&self, (second, third): (usize, usize), last: u16) -> Option<Ipv6Addr> {
        let group = |value| u16::from(octet(value));
        self.ipv6
            .then(|| from_groups(&[0xfd00, decimal(group(second)), decimal(group(third))], last))
    }

    /// Returns the node of a leaf, with its hash seed.
    ///
    /// # Panics
    /// Panics if there is no such leaf.
    pub fn leaf(&self, leaf: usize) -> &Node {
        &self.nodes[self.leaf_node(leaf)]
    }

    /// Returns the node called `name`.
    ///
    /// # Errors
    /// Returns `Unknown` with the known nodes.
    pub fn node(&self, name: &str) -> Result<&Node, LabError> {
        let names = || self.nodes.iter().map(|node| node.name.as_str());
        self.nodes
            .iter()
            .find(|node| node.name == name)
            .ok_or_else(|| unknown("node", name, names()))
    }

    /// Returns the index of the host called `name`.
    ///
    /// # Errors
    /// Returns `Unknown` with the known hosts.
    pub fn host(&self, name: &str) -> Result<usize, LabError> {
        let hosts = &self.nodes[..self.hosts()];
        hosts
            .iter()
            .position(|node| node.name == name)
            .ok_or_else(|| unknown("host", name, hosts.iter().map(|node| node.name.as_str())))
    }

    /// Returns the index of the link called `name`; both `l0-s1` and `s1-l0` name it.
    ///
    /// # Errors
    /// Returns `Unknown` with the known links.
    pub fn link(&self, name: &str) -> Result<usize, LabError> {
        let reversed = name.split_once('-').map(|(near, far)| format!("{far}-{near}"));
        self.links
            .iter()
            .position(|link| link.name == name || reversed.as_deref() == Some(link.name.as_str()))
            .ok_or_else(|| unknown("link", name, self.links.iter().map(|link| link.name.as_str())))
    }

    /// Returns the index of the link between a leaf and a spine.
    pub(crate) const fn spine_link_index(&self, leaf: usize, spine: usize) -> usize {
        self.hosts() + leaf * self.spines + spine
    }

    const fn leaf_node(&self, leaf: usize) -> usize {
        self.hosts() + leaf
    }

    pub(crate) const fn spine_node(&self, spine: usize) -> usize {
        self.hosts() + self.leaves + spine
    }

    fn host_link(&self, host: usize) -> Link {
        let leaf = self.leaf_of(host);
        let (third, second) = (octet(host % self.hosts_per_leaf), octet(leaf + 1));
        let port = |node, device: String, last| Port {
            node,
            device,
            address: Ipv4Addr::new(10, second, third, last),
            prefix_len: 24,
            address6: self.address6_in((second.into(), third.into()), last.into()),
        };
        Link {
            name: format!("h{host}-l{leaf}"),
            near: port(host, "eth0".into(), 2),
            far: port(self.leaf_node(leaf), format!("h{host}"), 1),
        }
    }

    fn spine_link(&self, leaf: usize, spine: usize) -> Link {
        let port = |node, device, last| Port {
            node,
            device,
            address: Ipv4Addr::new(10, octet(100 + leaf), octet(spine), last),
            prefix_len: 30,
            address6: self.address6_in((100 + leaf, spine), last.into()),
        };
        Link {
            name: format!("l{leaf}-s{spine}"),
            near: port(self.leaf_node(leaf), format!("s{spine}"), 1),
            far: port(self.spine_node(spine), format!("l{leaf}"), 2),
        }
    }
}

fn node(spec: &LabSpec, kind: NodeKind, index: usize) -> Node {
    let letter = match kind {
        NodeKind::Host => 'h',
        NodeKind::Leaf => 'l',
        NodeKind::Spine => 's',
    };
    let name = format!("{letter}{index}");
    // With zero the kernel would draw a secret seed.
    let hash_seed = Seed(spec.seed).child(&name, 0).rng().next_u32().max(1);
    Node { namespace: format!("weft-{}.{name}", spec.name), name, kind, hash_seed }
}

/// Returns the IPv6 group whose hexadecimal digits are the decimal digits of `value`, at most 999: 17 becomes `0x17`.
pub(crate) const fn decimal(value: u16) -> u16 {
    (value % 10) | ((value / 10 % 10) << 4) | ((value / 100 % 10) << 8)
}

/// Returns an IPv6 address from its first three groups and its last group.
fn from_groups(first: &[u16; 3], last: u16) -> Ipv6Addr {
    let &[a, b, c] = first;
    Ipv6Addr::new(a, b, c, 0, 0, 0, 0, last)
}

/// Returns `value` as an octet of an address.
///
/// # Panics
/// Panics above 255, which the ranges of [`LabSpec`] exclude.
pub(crate) fn octet(value: usize) -> u8 {
    u8::try_from(value).expect("the specification's ranges keep every octet below 256")
}

fn unknown<'a>(kind: &str, name: &str, known: impl Iterator<Item = &'a str>) -> LabError {
    let known: Vec<&str> = known.collect();
    LabError::Unknown(unknown_name(kind, name, &known))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn fabric(leaves: usize, spines: usize, hosts_per_leaf: usize) -> Fabric {
        let size = LabSpec { leaves, spines, hosts_per_leaf, ..LabSpec::named("t") };
        Fabric::new(&size).unwrap()
    }

    #[test]
    fn the_largest_lab_has_no_address_twice() {
        let spec = LabSpec { leaves: 99, spines: 250, hosts_per_leaf: 250, ..LabSpec::named("t") };
        let fabric = Fabric::new(&LabSpec { ipv6: true, ..spec }).unwrap();
        for family in [Family::V4, Family::V6] {
            let ports = fabric.links.iter().flat_map(|link| [&link.near, &link.far]);
            let addresses: Vec<IpAddr> = ports.map(|port| port.of(family)).collect();
            let distinct: BTreeSet<&IpAddr> = addresses.iter().collect();
            assert_eq!(distinct.len(), addresses.len());
        }
        let last = fabric.address6(fabric.hosts() - 1).unwrap();
        assert_eq!(last.to_string(), "fd00:99:249::2");
    }

    #[test]
    fn device_names_fit_the_kernel_and_are_unique_in_their_namespace() {
        let fabric = fabric(99, 250, 250);
        let mut seen = BTreeSet::new();
        for port in fabric.links.iter().flat_map(|link| [&link.near, &link.far]) {
            assert!(port.device.len() <= 15, "{port:?}");
            assert!(seen.insert((port.node, &port.device)), "{port:?} twice");
        }
    }

    #[test]
    fn every_router_has_its_own_seed() {
        let fabric = fabric(4, 8, 1);
        let seeds: BTreeSet<u32> = fabric.nodes.iter().map(|node| node.hash_seed).collect();
        assert_eq!(seeds.len(), fabric.nodes.len());
        assert!(!seeds.contains(&0));
    }

    #[test]
    fn a_link_is_found_from_either_end_and_a_typo_gets_a_hint() {
        let fabric = fabric(2, 4, 1);
        assert_eq!(fabric.link("l0-s1").unwrap(), fabric.link("s1-l0").unwrap());
        let error = fabric.link("l0-s9").unwrap_err().to_string();
        assert!(error.starts_with("no link \"l0-s9\", did you mean \"l0-s0\"?"), "{error}");
    }
}
