//! Prediction of the spine of a flow: the state that the lab installs in its routers is converted to tables of
//! weft-route, which follows flows through them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use weft_route::installed::{
    Cable, Group, GroupKind, Installed, Member, Port, PortState, Prefix, Route, Router, RouterHash,
    Target,
};
use weft_route::{End, RouterId, Start};
use weft_topo::hash::FiveTuple;
use weft_units::BitRate;

use crate::LinkState;
use crate::build::{HASH_FIELDS, HASH_POLICY};
use crate::fabric::{Fabric, Link, Node};
use crate::routes;

/// The header fields that a leaf hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The number of the sending host.
    pub source: usize,
    /// The number of the receiving host.
    pub destination: usize,
    /// The IP protocol: 17 for UDP, 6 for TCP.
    pub protocol: u8,
    /// The source port.
    pub source_port: u16,
    /// The destination port.
    pub destination_port: u16,
}

/// The paths of a lab's flows in one state of its links.
#[derive(Clone, Debug)]
pub struct Paths {
    fabric: Fabric,
    tables: weft_route::Fabric,
}

impl Fabric {
    /// Returns the paths of flows while every link is up.
    pub fn paths(&self) -> Paths {
        self.paths_with(&vec![LinkState::default(); self.links.len()])
    }

    pub(crate) fn paths_with(&self, links: &[LinkState]) -> Paths {
        let leaves = (0..self.leaves()).map(|leaf| self.leaf_tables(leaf, links));
        let spines = (0..self.spines()).map(|spine| self.spine_tables(spine, links));
        let installed = Installed { routers: leaves.chain(spines).collect() };
        let tables = weft_route::Fabric::new(installed).expect("a lab's routers fit each other");
        Paths { fabric: self.clone(), tables }
    }

    fn leaf_tables(&self, leaf: usize, links: &[LinkState]) -> Router {
        let mut router = self.router(self.leaf(leaf));
        let hosts = (0..self.hosts()).filter(|&host| self.leaf_of(host) == leaf);
        for (host, link) in hosts.map(|host| (host, &self.links[host])) {
            let name = link.far.device.clone();
            let cable = Cable::Host(self.address(host).into());
            let state = if links[host].down { PortState::NoCarrier } else { PortState::Up };
            router.groups.push(single(&name));
            router.routes.push(Route {
                to: prefix(link.far.address, link.far.prefix_len),
                via: Target::Group(name.clone()),
                steered: false,
            });
            router.ports.push(port(router.ports.len(), name, state, cable));
        }
        for spine in 0..self.spines() {
            let index = self.spine_link_index(leaf, spine);
            let Link { near, far, .. } = &self.links[index];
            let router_name = self.nodes[far.node].name.clone();
            let cable = Cable::Peer { router: router_name, port: far.device.clone() };
            let state = if links[index].down { PortState::Down } else { PortState::Up };
            router.ports.push(port(router.ports.len(), near.device.clone(), state, cable));
        }
        let mut names = BTreeMap::new();
        for (other, spines) in routes::to_leaves(self, leaf, |link| !links[link].withdrawn) {
            let via = if spines.is_empty() {
                Target::Unreachable
            } else {
                let name = format!("up{}", names.len());
                let name = names.entry(spines).or_insert_with_key(|spines| {
                    let kind = GroupKind::HashThreshold;
                    let members = spines.iter().map(|spine| member(format!("s{spine}"))).collect();
                    router.groups.push(Group { name: name.clone(), kind, members });
                    name
                });
                Target::Group(name.clone())
            };
            let to = routes::leaf_network(other);
            router.routes.push(Route { to: prefix(to.0, to.1), via, steered: false });
        }
        router
    }

    fn spine_tables(&self, spine: usize, links: &[LinkState]) -> Router {
        let mut router = self.router(&self.nodes[self.spine_node(spine)]);
        for leaf in 0..self.leaves() {
            let index = self.spine_link_index(leaf, spine);
            let Link { near, far, .. } = &self.links[index];
            let name = far.device.clone();
            let router_name = self.nodes[near.node].name.clone();
            let cable = Cable::Peer { router: router_name, port: near.device.clone() };
            let state = if links[index].down { PortState::NoCarrier } else { PortState::Up };
            let (to, len) = routes::leaf_network(leaf);
            router.groups.push(single(&name));
            router.routes.push(Route {
                to: prefix(to, len),
                via: Target::Group(name.clone()),
                steered: false,
            });
            router.ports.push(port(leaf, name, state, cable));
        }
        router
    }

    /// Returns a router of the lab without ports, groups and routes.
    fn router(&self, node: &Node) -> Router {
        let hash =
            RouterHash::Linux { policy: HASH_POLICY, fields: HASH_FIELDS, seed: node.hash_seed };
        let (ports, groups, routes) = (vec![], vec![], vec![]);
        let (name, ignore_linkdown, ipv6) = (node.name.clone(), true, None);
        Router { name, hash, ignore_linkdown, ipv6, ports, groups, routes }
    }
}

impl Paths {
    /// Returns the index of the spine to which the source's leaf sends a flow; `None` if both hosts share a leaf or no
    /// spine is usable.
    ///
    /// # Panics
    /// Panics if a host of `flow` does not exist.
    pub fn spine_of(&self, flow: &Flow) -> Option<usize> {
        let leaves = self.fabric.leaves();
        let leaf = self.fabric.leaf_of(flow.source);
        let leaf = RouterId(u32::try_from(leaf).expect("a lab has at most 99 leaves"));
        let tuple = FiveTuple {
            src: self.fabric.address(flow.source).into(),
            dst: self.fabric.address(flow.destination).into(),
            src_port: flow.source_port,
            dst_port: flow.destination_port,
            protocol: flow.protocol,
        };
        // The path starts at the leaf, because only its choice matters and the host's own link does not.
        let path = self.tables.path_from(Start::Router(leaf), &tuple);
        match self.tables.to(*path.links().first()?) {
            End::Router(router) => Some(router.index() - leaves),
            End::Host(_) | End::Nothing => None,
        }
    }

    /// Returns the source ports from `first` upward with which `flow` takes `spine`. The flow's own source port is
    /// ignored.
    ///
    /// # Panics
    /// Panics if a host of `flow` does not exist.
    pub fn ports_over(
        &self,
        flow: &Flow,
        spine: usize,
        first: u16,
    ) -> impl Iterator<Item = u16> + '_ {
        let flow = *flow;
        (first..=u16::MAX)
            .filter(move |&source_port| self.spine_of(&Flow { source_port, ..flow }) == Some(spine))
    }
}

fn port(place: usize, name: String, state: PortState, cable: Cable) -> Port {
    let ifindex = u32::try_from(place + 1).expect("a lab's router has at most 500 ports");
    Port { name, ifindex, speed: speed(), state, to: Some(cable) }
}

/// Returns the speed that a veth device reports.
fn speed() -> BitRate {
    BitRate::gbps(10).expect("it is not zero")
}

fn member(port: String) -> Member {
    Member { port, via: None, weight: 1, unreachable: false }
}

fn single(port: &str) -> Group {
    let members = vec![member(port.to_owned())];
    Group { name: port.to_owned(), kind: GroupKind::Single, members }
}

fn prefix(address: Ipv4Addr, len: u8) -> Prefix {
    Prefix::new(address, len).expect("a lab's prefixes have at most 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LabSpec;

    fn flow(source: usize, destination: usize) -> Flow {
        Flow { source, destination, protocol: 17, source_port: 0, destination_port: 4791 }
    }

    fn spines_used(paths: &Paths) -> Vec<usize> {
        let of = |source_port| paths.spine_of(&Flow { source_port, ..flow(0, 1) });
        let mut spines: Vec<usize> = (1..400).filter_map(of).collect();
        spines.sort_unstable();
        spines.dedup();
        spines
    }

    #[test]
    fn every_spine_has_ports_that_reach_it() {
        let fabric = Fabric::new(&LabSpec { spines: 8, ..LabSpec::named("t") }).unwrap();
        let paths = fabric.paths();
        for spine in 0..8 {
            let port = paths.ports_over(&flow(0, 1), spine, 0xc000).next().unwrap();
            let found = paths.spine_of(&Flow { source_port: port, ..flow(0, 1) });
            assert_eq!(found, Some(spine));
        }
    }

    #[test]
    fn hosts_behind_one_leaf_use_no_spine() {
        let fabric = Fabric::new(&LabSpec { hosts_per_leaf: 2, ..LabSpec::named("t") }).unwrap();
        let paths = fabric.paths();
        assert_eq!(paths.spine_of(&flow(0, 1)), None);
        assert!(paths.spine_of(&flow(1, 2)).is_some());
    }

    #[test]
    fn a_leaf_avoids_its_own_dead_links_and_those_withdrawn_elsewhere() {
        let fabric = Fabric::new(&LabSpec::named("t")).unwrap();
        let mut links = vec![LinkState::default(); fabric.links.len()];
        assert_eq!(spines_used(&fabric.paths_with(&links)), [0, 1, 2, 3]);
        links[fabric.link("l0-s2").unwrap()].down = true;
        assert_eq!(spines_used(&fabric.paths_with(&links)), [0, 1, 3]);
        // The leaf's routes do not yet avoid the link at the other end.
        let distant = fabric.link("l1-s0").unwrap();
        links[distant].down = true;
        assert_eq!(spines_used(&fabric.paths_with(&links)), [0, 1, 3]);
        links[distant].withdrawn = true;
        assert_eq!(spines_used(&fabric.paths_with(&links)), [1, 3]);
        for link in ["l0-s1", "l0-s3"] {
            links[fabric.link(link).unwrap()].down = true;
        }
        assert!(spines_used(&fabric.paths_with(&links)).is_empty());
    }
}
