//! The link of every equal-cost group that each flow should take: for each tier an edge colouring between the
//! switches where flows go up and those where they come down.
//!
//! A colour of tier `t` is a *plane* of the switches above: those of tier `t + 1` and higher that are connected
//! without lower ones. A flow that goes up into a plane comes down from the same plane, so its colour is one
//! uplink and one downlink. In two tiers each spine is a plane; in a fat tree of three, the aggregation
//! switches of one place in every pod, and above them each core switch.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use weft_topo::{LinkId, NodeId};

use super::bound::{join, root};
use super::{Choice, Colouring, Fabric, Flow};

/// Number of tiers below the highest that are planned.
const MAX_TIERS: usize = 3;
/// The absence of a link.
const NO_LINK: LinkId = LinkId(u32::MAX);

/// The links that a flow should take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// Links by the tier of their lower end, upwards and downwards.
    up: [LinkId; MAX_TIERS],
    down: [LinkId; MAX_TIERS],
    /// The link from the leaf to the host.
    last: LinkId,
}

impl Target {
    /// Returns the index of the link that the flow should take at this switch; `None` if that is not planned.
    pub(super) fn wanted(&self, fabric: &Fabric<'_>, choice: &Choice<'_>) -> Option<usize> {
        if choice.links.len() == 1 {
            return Some(0);
        }
        let topology = fabric.topology();
        let tier = usize::from(topology.tier(choice.switch));
        let below = topology.tier(topology.link(choice.links[0]).to);
        let link = match (usize::from(below), tier) {
            (0, _) => self.last,
            (to, tier) if to > tier => *self.up.get(tier - 1)?,
            (to, _) => *self.down.get(to - 1)?,
        };
        choice.links.iter().position(|&other| other == link)
    }
}

/// Returns a target for every flow; `None` if links of the network skip tiers, or it has more tiers than are planned.
pub(super) fn targets(fabric: &Fabric<'_>, flows: &[Flow]) -> Option<Vec<Target>> {
    let topology = fabric.topology();
    let highest = topology.switch_ids().map(|switch| topology.tier(switch)).max()?;
    let joins_neighbours = |id| {
        let link = topology.link(id);
        topology.tier(link.from).abs_diff(topology.tier(link.to)) == 1
    };
    if usize::from(highest) > MAX_TIERS + 1 || !topology.link_ids().all(joins_neighbours) {
        return None;
    }
    let mut targets = leaves(fabric, flows);
    // Each flow's current switch on the way up, and the corresponding switch on the way down.
    let mut at: Vec<[NodeId; 2]> = flows
        .iter()
        .zip(&targets)
        .map(|(flow, target)| {
            let leaf = topology.link(flow.first).to;
            [leaf, if target.last == NO_LINK { leaf } else { topology.link(target.last).from }]
        })
        .collect();
    for tier in 1..highest {
        Level::new(fabric, tier).plan(&mut targets, &mut at);
    }
    Some(targets)
}

/// Assigns each flow the leaf from which it comes down: evenly over the ports of its destination in its plane,
/// then over leaves.
fn leaves(fabric: &Fabric<'_>, flows: &[Flow]) -> Vec<Target> {
    let topology = fabric.topology();
    let mut by_cable = vec![0u32; topology.links() as usize];
    let mut by_leaf = vec![0u32; topology.nodes() as usize];
    let target = |flow: &Flow| {
        let source = topology.link(flow.first).to;
        let cables = topology.ports(flow.destination).iter().map(|port| port.reverse());
        let usable = cables.filter(|&down| {
            let leaf = topology.link(down).from;
            fabric.is_up(down) && topology.plane(leaf) == topology.plane(source)
        });
        let leaf_of = |down: LinkId| topology.link(down).from;
        let rank = |&down: &LinkId| {
            (leaf_of(down) != source, by_cable[down.index()], by_leaf[leaf_of(down).index()])
        };
        let last = usable.min_by_key(rank).unwrap_or(NO_LINK);
        if last != NO_LINK {
            by_cable[last.index()] += 1;
            by_leaf[leaf_of(last).index()] += 1;
        }
        Target { up: [NO_LINK; MAX_TIERS], down: [NO_LINK; MAX_TIERS], last }
    };
    flows.iter().map(target).collect()
}

/// One tier of switches with the planes above it.
struct Level<'a> {
    fabric: &'a Fabric<'a>,
    tier: u8,
    /// Number of colours in a slot: planes times lanes. Planes are numbered within a set of connected switches,
    /// lanes among parallel links.
    units: usize,
    /// `links[switch * units + plane * lanes + lane]`: uplinks, by index of the switch in its tier.
    links: Vec<LinkId>,
    /// The index of each node among the tier's switches.
    places: Vec<u32>,
}

impl<'a> Level<'a> {
    fn new(fabric: &'a Fabric<'a>, tier: u8) -> Self {
        let topology = fabric.topology();
        let [around, above] = [tier, tier + 1].map(|lowest| components(fabric, lowest));
        let mut numbers: BTreeMap<u32, BTreeMap<u32, usize>> = BTreeMap::new();
        let (mut planes, mut lanes) = (0, 0);
        let mut places = vec![u32::MAX; topology.nodes() as usize];
        let mut found: Vec<(usize, usize, usize, LinkId)> = Vec::new();
        let switches = topology.switch_ids().filter(|&switch| topology.tier(switch) == tier);
        let mut count = 0;
        for (place, switch) in (0..).zip(switches) {
            places[switch.index()] = place;
            count = place as usize + 1;
            let numbers = numbers.entry(around[switch.index()]).or_default();
            let first = found.len();
            for &link in topology.ports(switch) {
                let to = topology.link(link).to;
                if topology.tier(to) <= tier || !fabric.is_up(link) {
                    continue;
                }
                let next = numbers.len();
                let plane = *numbers.entry(above[to.index()]).or_insert(next);
                let lane = found[first..].iter().filter(|other| other.1 == plane).count();
                found.push((place as usize, plane, lane, link));
                (planes, lanes) = (planes.max(plane + 1), lanes.max(lane + 1));
            }
        }
        let units = planes * lanes;
        let mut links = vec![NO_LINK; count * units];
        for (place, plane, lane, link) in found {
            links[place * units + plane * lanes + lane] = link;
        }
        Self { fabric, tier, units, links, places }
    }

    fn links_of(&self, vertex: u32) -> &[LinkId] {
        // A switch has two vertices: one where flows go up, one where they come down.
        &self.links[vertex as usize / 2 * self.units..][..self.units]
    }

    /// Assigns links to every flow that goes up from this tier, and moves the flow there.
    fn plan(&self, targets: &mut [Target], at: &mut [[NodeId; 2]]) {
        let topology = self.fabric.topology();
        let goes_up = |ends: &[NodeId; 2]| {
            ends[0] != ends[1] && ends.iter().all(|&end| topology.tier(end) == self.tier)
        };
        let vertices = |&[up, down]: &[NodeId; 2]| {
            [2 * self.places[up.index()], 2 * self.places[down.index()] + 1]
        };
        let edges: Vec<u32> =
            (0..).zip(at.iter()).filter(|(_, ends)| goes_up(ends)).map(|(flow, _)| flow).collect();
        let mut degree = vec![0usize; 2 * (self.links.len() / self.units.max(1))];
        for vertex in edges.iter().flat_map(|&flow| vertices(&at[flow as usize])) {
            degree[vertex as usize] += 1;
        }
        let slots = (0..).zip(&degree).filter(|(_, edges)| **edges > 0).map(|(vertex, edges)| {
            let links = self.links_of(vertex).iter().filter(|&&link| link != NO_LINK).count();
            edges.div_ceil(links.max(1))
        });
        let slots = slots.max().unwrap_or(0);
        let mut colouring = Colouring::new(degree.len(), slots * self.units, edges.len());
        for vertex in (0..).take(degree.len()) {
            let missing =
                self.links_of(vertex).iter().enumerate().filter(|(_, link)| **link == NO_LINK);
            for (unit, _) in missing {
                (0..slots).for_each(|slot| colouring.block(vertex, slot * self.units + unit));
            }
        }
        for &flow in &edges {
            let [up, down] = vertices(&at[flow as usize]);
            colouring.add(up, down);
        }
        let tier = usize::from(self.tier) - 1;
        for (edge, &flow) in (0..).zip(&edges) {
            let Some(colour) = colouring.colour(edge) else { continue };
            let unit = colour % self.units;
            let ends = &mut at[flow as usize];
            let [up, down] = vertices(ends).map(|vertex| self.links_of(vertex)[unit]);
            let target = &mut targets[flow as usize];
            (target.up[tier], target.down[tier]) = (up, down.reverse());
            *ends = [topology.link(up).to, topology.link(down).to];
        }
    }
}

/// Returns the connected component of every node without hosts and switches below `lowest`.
fn components(fabric: &Fabric<'_>, lowest: u8) -> Vec<u32> {
    let topology = fabric.topology();
    let mut of: Vec<u32> = (0..topology.nodes()).collect();
    for id in topology.link_ids().filter(|&id| fabric.is_up(id)) {
        let link = topology.link(id);
        if topology.tier(link.from).min(topology.tier(link.to)) >= lowest {
            join(&mut of, link.from.0, link.to.0);
        }
    }
    (0..topology.nodes()).map(|node| root(&mut of, node)).collect()
}
