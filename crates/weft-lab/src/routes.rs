//! The routes of each namespace, as a routing protocol would install them.
//!
//! Routes are multipath routes with inline next hops. The kernel removes a next-hop object permanently when its device
//! goes down; an inline next hop becomes usable again when the device comes up.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::fabric::{Fabric, Family, NodeKind, decimal, octet};

/// Returns the routes of one node while every link is up, as lines for `ip -batch`.
pub(crate) fn initial(fabric: &Fabric, node: usize, family: Family) -> String {
    match fabric.nodes[node].kind {
        NodeKind::Host => {
            let gateway = fabric.links[node].far.of(family);
            format!("route replace default via {gateway}\n")
        }
        NodeKind::Leaf => leaf(fabric, node - fabric.hosts(), family, |_| true),
        NodeKind::Spine => spine(fabric, node - fabric.hosts() - fabric.leaves(), family),
    }
}

/// Returns a leaf's routes to the other leaves over the spines whose links are `usable` (by link index) at both ends.
pub(crate) fn leaf(
    fabric: &Fabric,
    leaf: usize,
    family: Family,
    usable: impl Fn(usize) -> bool,
) -> String {
    let mut batch = String::new();
    for (other, spines) in to_leaves(fabric, leaf, usable) {
        let next_hop = |spine| {
            let link = &fabric.links[fabric.spine_link_index(leaf, spine)];
            format!(" nexthop via {} dev {} weight 1", link.far.of(family), link.near.device)
        };
        let next_hops: String = spines.into_iter().map(next_hop).collect();
        let prefix = leaf_prefix(other, family);
        let line = if next_hops.is_empty() {
            writeln!(batch, "route replace unreachable {prefix}")
        } else {
            writeln!(batch, "route replace {prefix}{next_hops}")
        };
        line.expect("writing to a string cannot fail");
    }
    batch
}

/// Returns for each other leaf the spines that lead there, in the order of the leaf's route.
pub(crate) fn to_leaves(
    fabric: &Fabric,
    leaf: usize,
    usable: impl Fn(usize) -> bool,
) -> impl Iterator<Item = (usize, Vec<usize>)> {
    (0..fabric.leaves()).filter(move |&other| other != leaf).map(move |other| {
        let leads_there = |&spine: &usize| {
            usable(fabric.spine_link_index(leaf, spine))
                && usable(fabric.spine_link_index(other, spine))
        };
        (other, (0..fabric.spines()).filter(leads_there).collect())
    })
}

/// Returns a spine's routes to all leaves.
fn spine(fabric: &Fabric, spine: usize, family: Family) -> String {
    (0..fabric.leaves())
        .map(|leaf| {
            let link = &fabric.links[fabric.spine_link_index(leaf, spine)];
            let (via, device) = (link.near.of(family), &link.far.device);
            format!("route replace {} via {via} dev {device}\n", leaf_prefix(leaf, family))
        })
        .collect()
}

/// Returns the network of a leaf's hosts: an address and a prefix length in bits.
pub(crate) fn leaf_network(leaf: usize) -> (Ipv4Addr, u8) {
    (Ipv4Addr::new(10, octet(leaf + 1), 0, 0), 16)
}

/// Returns the IPv6 network of a leaf's hosts.
fn leaf_network6(leaf: usize) -> (Ipv6Addr, u8) {
    (Ipv6Addr::new(0xfd00, decimal(octet(leaf + 1).into()), 0, 0, 0, 0, 0, 0), 32)
}

fn leaf_prefix(leaf: usize, family: Family) -> String {
    let (address, len): (IpAddr, u8) = match family {
        Family::V4 => (leaf_network(leaf).0.into(), leaf_network(leaf).1),
        Family::V6 => (leaf_network6(leaf).0.into(), leaf_network6(leaf).1),
    };
    format!("{address}/{len}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LabSpec;

    #[test]
    fn a_leaf_reaches_another_over_the_spines_that_both_can_use() {
        let fabric = Fabric::new(&LabSpec { spines: 3, ..LabSpec::named("t") }).unwrap();
        let down = [fabric.link("l0-s0").unwrap(), fabric.link("l1-s2").unwrap()];
        let routes = leaf(&fabric, 0, Family::V4, |link| !down.contains(&link));
        assert_eq!(routes, "route replace 10.2.0.0/16 nexthop via 10.100.1.2 dev s1 weight 1\n");
    }

    #[test]
    fn a_leaf_without_a_spine_has_unreachable_routes() {
        let fabric = Fabric::new(&LabSpec { ipv6: true, ..LabSpec::named("t") }).unwrap();
        let routes = |family| leaf(&fabric, 1, family, |_| false);
        assert_eq!(routes(Family::V4), "route replace unreachable 10.1.0.0/16\n");
        assert_eq!(routes(Family::V6), "route replace unreachable fd00:1::/32\n");
    }
}
