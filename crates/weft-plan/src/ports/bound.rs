//! How many flows the busiest link carries at least, whatever the ports.
//!
//! Switches that hang together below a tier form a set that flows leave by its links up, and come
//! into by its links down. As many flows as must cross, over as many links as there are, is a bound
//! for each set. In a network of two tiers these are the degrees of König's theorem, so an edge
//! colouring reaches it.

use alloc::vec;
use alloc::vec::Vec;

use weft_topo::{NodeId, Topology};

use super::{Fabric, Flow};

/// The least load of the busiest link, and where it comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Flows on the busiest link at least.
    pub flows: u32,
    /// A switch of the set that forces it; none where no flow passes between switches.
    pub at: Option<NodeId>,
    /// Flows that have to cross the set's border there.
    pub crossing: u64,
    /// Links they can take.
    pub links: u64,
}

/// The highest of the bounds of all sets.
pub fn bound(fabric: &Fabric<'_>, flows: &[Flow]) -> Bound {
    let topology = fabric.topology();
    let highest = topology.switch_ids().map(|switch| topology.tier(switch)).max().unwrap_or(1);
    let mut best = Bound::default();
    for tier in 1..highest {
        // Who leaves: the sending port decides the leaf. Who comes in: all leaves of the host will do.
        for through_hosts in [false, true] {
            let sets = Sets::new(fabric, tier, through_hosts);
            best = sets.highest(fabric, flows, through_hosts, best);
        }
    }
    best
}

struct Sets {
    tier: u8,
    /// The lowest node of each node's set.
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
        // By set and, for flows coming in, the plane they come in: flows and links.
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
        let above = bounds.filter(|(bound, _)| bound.flows > best.flows);
        let highest = above.max_by_key(|(bound, set)| (bound.flows, core::cmp::Reverse(*set)));
        highest
            .map_or(best, |(bound, set)| Bound { at: Some(self.switch_of(topology, set)), ..bound })
    }

    fn switch_of(&self, topology: &Topology, set: u32) -> NodeId {
        let mut switches = topology.switch_ids();
        switches.find(|switch| self.of[switch.index()] == set).unwrap_or(NodeId(set))
    }
}

pub(super) fn join(sets: &mut [u32], a: u32, b: u32) {
    let (a, b) = (root(sets, a), root(sets, b));
    sets[a.max(b) as usize] = a.min(b);
}

/// The lowest of a set; halves the way to it (Tarjan and van Leeuwen 1984).
pub(super) fn root(sets: &mut [u32], mut node: u32) -> u32 {
    while sets[node as usize] != node {
        sets[node as usize] = sets[sets[node as usize] as usize];
        node = sets[node as usize];
    }
    node
}
