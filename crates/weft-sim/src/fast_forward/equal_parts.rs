//! The comparison of parts of the traffic: those with equal routes over links of their own behave alike.
//!
//! This is the memo of Wormhole (arXiv 2602.10615, section 6) for parts that run at the same time: flows that share links
//! form a part, and a part of the same shape as another need not be simulated again. Here the shape is all of it: each
//! set of equal-cost links, with rates, latencies and error rates, at every switch and for every pair of hosts.

use weft_topo::{LinkId, NodeId, Routes, Topology};

/// No node or link yet.
const NONE: u32 = u32::MAX;

/// The pairs of hosts that exchange packets in one part, in an order that is the same in all parts.
pub type Pairs = Vec<(NodeId, NodeId)>;

/// Returns `true` if no link can carry packets of two parts, and the routes of every part are those of the first with
/// other links of the same kind.
pub fn are_equal(topology: &Topology, routes: &Routes, parts: &[Pairs]) -> bool {
    let Some((first, others)) = parts.split_first() else { return false };
    let mut owners = vec![NONE; topology.links() as usize];
    let mut all = (0..).zip(std::iter::once(first).chain(others));
    all.all(|(number, part)| {
        let mut mapping = Mapping::new(topology, routes, number, &mut owners);
        part.len() == first.len()
            && first.iter().zip(part).all(|(&one, &other)| {
                mapping.covers(one, other) && mapping.covers(reverse(one), reverse(other))
            })
    })
}

/// Returns the pair whose acknowledgements are the packets of this one.
const fn reverse((from, to): (NodeId, NodeId)) -> (NodeId, NodeId) {
    (to, from)
}

/// The mapping of the first part's links and nodes to those of another part, as far as it is known.
struct Mapping<'a> {
    topology: &'a Topology,
    routes: &'a Routes,
    /// The other part's number.
    number: u32,
    /// The part that each link belongs to.
    owners: &'a mut [u32],
    /// For each link of the first part that of the other.
    links: Vec<u32>,
    /// For each node of the first part that of the other.
    nodes: Vec<u32>,
    /// For each node the number of pairs that were followed before it was last visited.
    visited: Vec<u32>,
    /// Number of pairs that were followed.
    pairs: u32,
}

impl<'a> Mapping<'a> {
    fn new(topology: &'a Topology, routes: &'a Routes, number: u32, owners: &'a mut [u32]) -> Self {
        let nodes = vec![NONE; topology.nodes() as usize];
        let links = vec![NONE; topology.links() as usize];
        Self { visited: nodes.clone(), topology, routes, number, owners, links, nodes, pairs: 0 }
    }

    /// Follows all routes of a pair and of its image together; returns `false` where they differ.
    fn covers(&mut self, one: (NodeId, NodeId), other: (NodeId, NodeId)) -> bool {
        self.pairs += 1;
        if !self.maps_node(one.0, other.0) || !self.maps_node(one.1, other.1) {
            return false;
        }
        let first = |(from, to)| self.routes.first_links(from, to).collect::<Vec<_>>();
        let (links, images) = (first(one), first(other));
        let mut reached = Vec::new();
        if !self.maps_links(&links, &images, &mut reached) {
            return false;
        }
        while let Some((node, image)) = reached.pop() {
            if node == one.1 || self.visited[node.index()] == self.pairs {
                continue;
            }
            self.visited[node.index()] = self.pairs;
            let links = self.routes.next_links(node, one.1);
            let images = self.routes.next_links(image, other.1);
            if !self.maps_links(links, images, &mut reached) {
                return false;
            }
        }
        true
    }

    /// Maps a set of links to another, and adds the nodes they lead to; returns `false` if that is impossible.
    fn maps_links(
        &mut self,
        links: &[LinkId],
        images: &[LinkId],
        reached: &mut Vec<(NodeId, NodeId)>,
    ) -> bool {
        links.len() == images.len()
            && links.iter().zip(images).all(|(&link, &image)| {
                let ends = [link, image].map(|link| self.topology.link(link).to);
                reached.push((ends[0], ends[1]));
                self.maps_link(link, image) && self.maps_node(ends[0], ends[1])
            })
    }

    /// Maps a link to another of the same kind, which no other link is mapped to.
    fn maps_link(&mut self, link: LinkId, image: LinkId) -> bool {
        let known = &mut self.links[link.index()];
        if *known != NONE {
            return *known == image.0;
        }
        let owner = &mut self.owners[image.index()];
        if *owner != NONE {
            return false;
        }
        (*known, *owner) = (image.0, self.number);
        let kind = |link| {
            let it = self.topology.link(link);
            (it.rate, it.propagation, self.topology.error_rate(link).to_bits())
        };
        kind(link) == kind(image)
    }

    /// Maps a node to another of the same kind.
    fn maps_node(&mut self, node: NodeId, image: NodeId) -> bool {
        let known = &mut self.nodes[node.index()];
        if *known == NONE {
            *known = image.0;
        }
        *known == image.0 && self.topology.is_host(node) == self.topology.is_host(image)
    }
}

#[cfg(test)]
mod tests {
    use weft_topo::Failures;
    use weft_topo::build::{LeafSpine, Rail};

    use super::*;

    const RAIL: Rail = Rail {
        blocks: 2,
        servers_per_block: 2,
        rails: 4,
        spines: 2,
        port_rate: weft_units::BitRate::bps(1_000).unwrap(),
        uplink_rate: weft_units::BitRate::bps(1_000).unwrap(),
        propagation: weft_units::Duration::from_nanos(500),
    };

    /// Returns rings around all servers, one for each of `rails`.
    fn rings(rails: &[u32]) -> Pairs {
        let host = |server: u32, rail| RAIL.host(server / 2, server % 2, rail);
        let ring = |&rail: &u32| {
            (0..4).map(move |server| (host(server, rail), host((server + 1) % 4, rail)))
        };
        rails.iter().flat_map(ring).collect()
    }

    fn equal(topology: &Topology, failures: &Failures, parts: &[Pairs]) -> bool {
        are_equal(topology, &Routes::compute(topology, failures).unwrap(), parts)
    }

    #[test]
    fn pairs_of_rails_are_equal_and_single_rails_share_leaves() {
        let topology = RAIL.build().unwrap();
        let none = Failures::none();
        assert!(equal(&topology, &none, &[rings(&[0, 1]), rings(&[2, 3])]));
        assert!(!equal(&topology, &none, &[rings(&[0]), rings(&[1])]), "they share uplinks");
        assert!(!equal(&topology, &none, &[rings(&[0, 1]), rings(&[2])]), "fewer flows");
        assert!(!equal(&topology, &none, &[rings(&[0, 0]), rings(&[2, 3])]), "another shape");
    }

    #[test]
    fn a_part_with_a_failed_cable_differs() {
        let topology = RAIL.build().unwrap();
        let mut failures = Failures::none();
        let leaf = topology.link(topology.ports(RAIL.host(0, 0, 2))[0]).to;
        let uplink = *topology.ports(leaf).last().unwrap();
        failures.fail_link(uplink);
        assert!(!equal(&topology, &failures, &[rings(&[0, 1]), rings(&[2, 3])]));
    }

    #[test]
    fn hosts_of_one_leaf_share_its_uplinks() {
        let topology = LeafSpine { leaves: 2, hosts_per_leaf: 2, ..LeafSpine::default() };
        let topology = topology.build().unwrap();
        let pair = |from, to| vec![(NodeId(from), NodeId(to))];
        let parts = [pair(0, 2), pair(1, 3)];
        assert!(!equal(&topology, &Failures::none(), &parts));
    }
}
