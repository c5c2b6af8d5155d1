//! The lower bound of the number of flows on the busiest link, for any ports.
//!
//! Switches connected below a tier form a set, which flows leave by its uplinks and enter by its downlinks. The
//! number of flows that must cross, divided by the number of links, is a bound for each set. In a network of
//! two tiers these are the degrees of König's theorem, so an edge colouring reaches the bound.

use alloc::vec;
use alloc::vec::Vec;

use weft_topo::{NodeId, Topology};

use super::{Fabric, Flow};

/// The lower bound of the busiest link's load, and the set of switches that causes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Smallest possible number of flows on the busiest link.
    pub flows: u32,
    /// A switch of the set that causes the bound; `None` if no flow passes between switches.
    pub at: Option<NodeId>,
    /// Number of flows that must cross the set's border.
    pub crossing: u64,
    /// Number of links that they can take.
    pub links: u64,
}

/// Returns the highest bound of all sets.
pub fn bound(fabric: &Fabric<'_>, flows: &[Flow]) -> Bound {
    let topology = fabric.topology();
    let highest = topology.switch_ids().map(|switch| topology.tier(switch)).max().unwrap_or(1);
    let mut best = Bound::default();
    for tier in 1..highest {
        // A flow leaves from the leaf of its sending port; it may enter at any leaf of its destination.
        for through_hosts in [false, true] {
            let sets = Sets::new(fabric, tier, through_hosts);
            best = sets.highest(fabric, flows, through_hosts, best);
        }
    }
    best
}

/// The sets of nodes that are connected over switches up to a tier.
struct Sets {
    tier: u8,
    /// By node, the lowest node of its set.
    of: Vec<u32>,
}

impl Sets {
    fn new(fabric: &Fabric<'_>, tier: u8, through_hosts: bool) -> Self {
        let topology = fabric.topology();
        let mut of: Vec<u32> = (0..topology.nodes()).collect();
        for id in topology.link_ids() {
            let link = topology.link(id);
            let (a, b) = (topology.tier(link.from), topology.tier(link.to));
            if a.max(b) <= tier && (through_hosts || a.min(b) > 0) && fabric.is_up(id) {
                join(&mut of, link.from.0, link.to.0);
            }
        }
        for node in 0..topology.nodes() {
            of[node as usize] = root(&mut of, node);
        }
        Self { tier, of }
    }

    fn highest(&self, fabric: &Fabric<'_>, flows: &[Flow], inward: bool, best: Bound) -> Bound {
        let topology = fabric.topology();
        // Numbers of flows and links, by set and, for incoming flows, by the plane that they come from.
        let planes = if inward { topology.planes() as usize } else { 1 };
        let mut borders = vec![(0u64, 0u64); self.of.len() * planes];
        let border = |node: NodeId, switch: NodeId| {
            let plane = if inward { usize::from(topology.plane(switch)) } else { 0 };
            self.of[node.index()] as usize * planes + plane
        };
        for id in topology.link_ids().filter(|&id| fabric.is_up(id)) {
            let link = topology.link(if inward { id.reverse() } else { id });
            let (from, to) = (topology.tier(link.from), topology.tier(link.to));
            if from > 0 && from <= self.tier && to > self.tier {
                borders[border(link.from, link.from)].1 += 1;
            }
        }
        for flow in flows {
            let leaf = topology.link(flow.first).to;
            let set = |node: NodeId| self.of[node.index()];
            let (inside, stays) = if inward {
                (flow.destination, set(leaf) == set(flow.destination))
            } else {
                let mut ports = topology.ports(flow.destination).iter();
                (leaf, ports.any(|&port| set(topology.link(port).to) == set(leaf)))
            };
            borders[border(inside, leaf)].0 += u64::from(!stays);
        }
        let bounds = (0..).zip(borders).filter(|(_, (_, links))| *links > 0).map(
            |(place, (crossing, links)): (usize, _)| {
                let flows = u32::try_from(crossing.div_ceil(links)).unwrap_or(u32::MAX);
                let set = u32::try_from(place / planes).unwrap_or(u32::MAX);
                (Bound { flows, at: None, crossing, links }, set)
            },
        );
        let higher = bounds.filter(|(bound, _)| bound.flows > best.flows);
        let highest = higher.max_by_key(|(bound, set)| (bound.flows, core::cmp::Reverse(*set)));
        highest
            .map_or(best, |(bound, set)| Bound { at: Some(self.switch_of(topology, set)), ..bound })
    }

    fn switch_of(&self, topology: &Topology, set: u32) -> NodeId {
        let mut switches = topology.switch_ids();
        switches.find(|switch| self.of[switch.index()] == set).unwrap_or(NodeId(set))
    }
}

/// Merges the sets of two nodes.
pub(super) fn join(sets: &mut [u32], a: u32, b: u32) {
    let (a, b) = (root(sets, a), root(sets, b));
    sets[a.max(b) as usize] = a.min(b);
}

/// Returns the lowest node of the set with path halving (Tarjan and van Leeuwen 1984).
pub(super) fn root(sets: &mut [u32], mut node: u32) -> u32 {
    while sets[node as usize] != node {
        sets[node as usize] = sets[sets[node as usize] as usize];
        node = sets[node as usize];
    }
    node
}
