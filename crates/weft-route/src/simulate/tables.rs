//! The installed state of a topology's routers after routing has converged.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use weft_topo::hash::SwitchHash;
use weft_topo::{Failures, NodeId, Routes, Topology};

use crate::installed::{
    Cable, Group, GroupKind, Installed, Member, Port, PortState, Prefix, Route, Router, RouterHash,
    Target,
};

/// The network 10.0.0.0/8, in which the hosts of one leaf (or pair of leaves) share a prefix.
const NET: u32 = 0x0a00_0000;

/// Returns an address for each host. Hosts with the same leaves have consecutive addresses, so that one route per leaf
/// is enough.
pub fn addresses(topology: &Topology, routes: &Routes) -> Vec<u32> {
    let mut places: BTreeMap<u32, u32> = BTreeMap::new();
    let placed: Vec<(u32, u32)> = topology
        .host_ids()
        .map(|host| {
            let next = places.entry(routes.group(host)).or_default();
            *next += 1;
            (routes.group(host), *next - 1)
        })
        .collect();
    let bits = bits_of_group(places.values().copied().max().unwrap_or(1));
    placed.into_iter().map(|(group, place)| NET + (group << bits) + place).collect()
}

fn bits_of_group(max_hosts: u32) -> u32 {
    max_hosts.next_power_of_two().trailing_zeros()
}

/// Returns the installed state: routes are aggregated as far as they are equal, groups are in the order of ports.
///
/// # Panics
/// If the number of addresses is not that of hosts, or the number of hashes is not that of switches.
pub fn installed(
    topology: &Topology,
    failures: &Failures,
    routes: &Routes,
    hashes: &[SwitchHash],
    addresses: &[u32],
) -> Installed {
    assert_eq!(addresses.len(), topology.hosts() as usize, "an address for each host");
    assert_eq!(hashes.len(), topology.switches() as usize, "a hash for each switch");
    let mut port_of_link = vec![0u32; topology.links() as usize];
    for switch in topology.switch_ids() {
        for (place, link) in (0..).zip(topology.ports(switch)) {
            port_of_link[link.index()] = place;
        }
    }
    let mut by_address: Vec<(u32, NodeId)> =
        addresses.iter().copied().zip(topology.host_ids()).collect();
    by_address.sort_unstable();
    let group = |&(_, host): &(u32, NodeId)| routes.group(host);
    let leaves = by_address.chunk_by(|a, b| group(a) == group(b)).map(<[_]>::to_vec).collect();
    let network = Network { topology, failures, routes, addresses, port_of_link, leaves };
    let routers = topology.switch_ids().zip(hashes);
    Installed { routers: routers.map(|(switch, hash)| network.router(switch, hash)).collect() }
}

/// Returns a switch's name.
pub fn router_name(topology: &Topology, switch: NodeId) -> String {
    format!("{}", topology.name(switch)).replace(' ', "-")
}

struct Network<'a> {
    topology: &'a Topology,
    failures: &'a Failures,
    routes: &'a Routes,
    addresses: &'a [u32],
    port_of_link: Vec<u32>,
    /// The hosts of each set of leaves with their addresses, in order.
    leaves: Vec<Vec<(u32, NodeId)>>,
}

impl Network<'_> {
    fn router(&self, switch: NodeId, hash: &SwitchHash) -> Router {
        let SwitchHash { algorithm, seed, rotate } = *hash;
        let mut groups = Groups { names: BTreeMap::new(), groups: Vec::new() };
        let mut routes = Vec::new();
        self.aggregate(switch, (0, 0), &mut groups, &mut routes);
        Router {
            name: router_name(self.topology, switch),
            hash: RouterHash::Switch { algorithm, seed, rotate },
            ignore_linkdown: true,
            ipv6: None,
            ports: self.ports(switch),
            groups: groups.groups,
            routes,
        }
    }

    fn ports(&self, switch: NodeId) -> Vec<Port> {
        let port = |(place, &link): (u32, &weft_topo::LinkId)| {
            let ends = self.topology.link(link);
            // One end of each cable names it.
            let to = if self.topology.is_host(ends.to) {
                let address = Ipv4Addr::from_bits(self.addresses[ends.to.index()]);
                Some(Cable::Host(address.into()))
            } else {
                (switch < ends.to).then(|| Cable::Peer {
                    router: router_name(self.topology, ends.to),
                    port: format!("p{}", self.port_of_link[link.reverse().index()]),
                })
            };
            let up = self.failures.is_up(self.topology, link);
            Port {
                name: format!("p{place}"),
                ifindex: place + 1,
                speed: ends.rate,
                state: if up { PortState::Up } else { PortState::NoCarrier },
                to,
            }
        };
        (0..).zip(self.topology.ports(switch)).map(port).collect()
    }

    /// Adds routes for the addresses of a prefix: one route if they all have the same next hops, else the routes of its
    /// halves.
    fn aggregate(
        &self,
        switch: NodeId,
        (first, len): (u32, u8),
        groups: &mut Groups,
        routes: &mut Vec<Route>,
    ) {
        let prefix = Prefix::new(Ipv4Addr::from_bits(first), len).expect("at most 32 bits");
        let last = first + (u32::MAX.checked_shr(len.into()).unwrap_or(0));
        let from = self.leaves.partition_point(|hosts| hosts[hosts.len() - 1].0 < first);
        let to = self.leaves.partition_point(|hosts| hosts[0].0 <= last);
        let within = |hosts: &'_ Vec<(u32, NodeId)>| -> Option<(NodeId, NodeId)> {
            let (nearest, furthest) = (hosts[0], hosts[hosts.len() - 1]);
            if first <= nearest.0 && furthest.0 <= last {
                return Some((nearest.1, furthest.1));
            }
            let from = hosts.partition_point(|&(address, _)| address < first);
            let to = hosts.partition_point(|&(address, _)| address <= last);
            // Hosts of a leaf have one set of next hops; at the leaf itself each host has its own.
            Some((hosts[from..to].first()?.1, hosts[from..to].last()?.1))
        };
        let mut ends = self.leaves[from..to].iter().filter_map(within);
        let Some((nearest, furthest)) = ends.next() else { return };
        let links = self.routes.next_links(switch, nearest);
        let same = |host| self.routes.next_links(switch, host) == links;
        if !same(furthest) || !ends.all(|(nearest, furthest)| same(nearest) && same(furthest)) {
            self.aggregate(switch, (first, len + 1), groups, routes);
            self.aggregate(switch, (first + (1 << (31 - len)), len + 1), groups, routes);
            return;
        }
        let via = if links.is_empty() {
            Target::Unreachable
        } else {
            let ports = links.iter().map(|link| self.port_of_link[link.index()]);
            Target::Group(groups.of(ports.collect()))
        };
        routes.push(Route { to: prefix, via, steered: false });
    }
}

struct Groups {
    names: BTreeMap<Vec<u32>, String>,
    groups: Vec<Group>,
}

impl Groups {
    /// Returns the name of the group of these ports, which is added if it is new.
    fn of(&mut self, ports: Vec<u32>) -> String {
        if let Some(name) = self.names.get(&ports) {
            return name.clone();
        }
        let name = format!("g{}", self.groups.len());
        let kind = if ports.len() == 1 { GroupKind::Single } else { GroupKind::HashThreshold };
        let member = |port: &u32| Member {
            port: format!("p{port}"),
            via: None,
            weight: 1,
            unreachable: false,
        };
        let members = ports.iter().map(member).collect();
        self.groups.push(Group { name: name.clone(), kind, members });
        self.names.insert(ports, name.clone());
        name
    }
}
