//! The division of a network into parts that run side by side.
//!
//! Hosts are cut into ranges of equal size, between the hosts of two leaves. A switch joins the part with which it
//! shares most cables; among equal parts, the one with the fewest ports of its tier. So pods stay together, and the
//! switches above them are spread evenly.

use std::collections::BTreeMap;
use std::ops::Range;

use weft_topo::{NodeId, Topology};

use crate::fabric::Share;

/// The parts of a network.
#[derive(Debug)]
pub(super) struct Partition {
    /// The hosts of each part.
    pub(super) hosts: Vec<Range<usize>>,
    /// The links and switches of each part.
    pub(super) shares: Vec<Share>,
    /// The part of each node.
    pub(super) part_of: Vec<u16>,
}

/// The part of a switch that has none yet.
const UNASSIGNED: u16 = u16::MAX;

impl Partition {
    /// Divides a network into up to `count` parts: fewer if it has fewer leaves.
    pub(super) fn new(topology: &Topology, count: usize) -> Self {
        let hosts = ranges(topology, count.min(usize::from(UNASSIGNED)));
        let mut part_of = vec![UNASSIGNED; (topology.hosts() + topology.switches()) as usize];
        for (range, part) in hosts.iter().zip(0..) {
            part_of[range.clone()].fill(part);
        }
        assign_switches(topology, hosts.len(), &mut part_of);
        let mut shares: Vec<Share> = hosts.iter().map(|_| Share::default()).collect();
        for link in topology.link_ids() {
            let part = part_of[topology.link(link).from.index()];
            shares[usize::from(part)].links.push(link);
        }
        for (index, switch) in topology.switch_ids().enumerate() {
            shares[usize::from(part_of[switch.index()])].switches.push(index);
        }
        Self { hosts, shares, part_of }
    }

    /// Returns the number of parts.
    pub(super) fn count(&self) -> usize {
        self.hosts.len()
    }
}

/// Returns `true` if the hosts have several leaves, so that a network can be divided.
pub(super) fn can_divide(topology: &Topology) -> bool {
    ranges(topology, 2).len() > 1
}

/// Returns ranges of about equally many hosts that do not divide the hosts of a leaf.
fn ranges(topology: &Topology, count: usize) -> Vec<Range<usize>> {
    let leaf = |host: NodeId| topology.ports(host).first().map(|&port| topology.link(port).to);
    let hosts = topology.hosts() as usize;
    let ids: Vec<NodeId> = topology.host_ids().collect();
    let pairs = ids.iter().zip(ids.iter().skip(1));
    let cuts = pairs.filter(|(before, after)| leaf(**before) != leaf(**after));
    let mut cuts = cuts.map(|(_, after)| after.index()).chain([hosts]).peekable();
    let (mut ranges, mut start) = (Vec::new(), 0);
    for part in 1..=count {
        let target = hosts * part / count;
        // The last cut up to the target, or the first one after the start.
        let mut end = start;
        while let Some(&cut) = cuts.peek()
            && (cut <= target || end == start)
        {
            (end, _) = (cut, cuts.next());
        }
        if end > start {
            ranges.push(start..end);
            start = end;
        }
    }
    ranges
}

/// Assigns each switch to a part, the lowest tiers first.
fn assign_switches(topology: &Topology, count: usize, part_of: &mut [u16]) {
    let mut switches: Vec<NodeId> = topology.switch_ids().collect();
    switches.sort_by_key(|&switch| topology.tier(switch));
    // Ports by tier and part.
    let mut loads: BTreeMap<u8, Vec<usize>> = BTreeMap::new();
    for switch in switches {
        let load = loads.entry(topology.tier(switch)).or_insert_with(|| vec![0; count]);
        let mut cables = vec![0_usize; count];
        for &port in topology.ports(switch) {
            let neighbour = part_of[topology.link(port).to.index()];
            if neighbour != UNASSIGNED {
                cables[usize::from(neighbour)] += 1;
            }
        }
        let rank = |part: &usize| (std::cmp::Reverse(cables[*part]), load[*part], *part);
        let part = (0..count).min_by_key(rank).expect("there is a part");
        load[part] += topology.ports(switch).len();
        part_of[switch.index()] = u16::try_from(part).expect("fewer than 2^16 parts");
    }
}

#[cfg(test)]
mod tests {
    use weft_topo::build::{FatTree, LeafSpine};

    use super::*;

    #[test]
    fn pods_stay_together_and_cores_are_spread() {
        let topology = FatTree { hosts: 1024, tiers: 3, ..FatTree::default() }.build().unwrap();
        for count in [1, 2, 4] {
            let partition = Partition::new(&topology, count);
            assert_eq!(partition.count(), count);
            let mut of_tier: BTreeMap<(u8, u16), usize> = BTreeMap::new();
            for (node, &part) in partition.part_of.iter().enumerate() {
                let tier = topology.tier(NodeId(u32::try_from(node).unwrap()));
                *of_tier.entry((tier, part)).or_default() += 1;
            }
            let counts = |tier| of_tier.range((tier, 0)..(tier + 1, 0)).map(|(_, &nodes)| nodes);
            for tier in 0..4 {
                let (least, most) = (counts(tier).min().unwrap(), counts(tier).max().unwrap());
                assert!(most - least <= 1, "{count} parts, tier {tier}: {of_tier:?}");
            }
            // Only cables to the cores cross.
            for link in topology.link_ids() {
                let ends = topology.link(link);
                let [from, to] = [ends.from, ends.to].map(|node| partition.part_of[node.index()]);
                let below = topology.tier(ends.from).max(topology.tier(ends.to)) < 3;
                assert!(from == to || !below, "{count} parts, {ends:?}");
            }
        }
    }

    #[test]
    fn every_link_and_switch_has_one_part_and_no_leaf_is_divided() {
        let leaves = LeafSpine { leaves: 5, spines: 3, hosts_per_leaf: 4, ..LeafSpine::default() };
        let topology = leaves.build().unwrap();
        for (count, expected) in [(2, 2), (3, 3), (5, 5), (64, 5)] {
            let partition = Partition::new(&topology, count);
            assert_eq!(partition.count(), expected);
            assert!(partition.hosts.iter().all(|hosts| hosts.len() % 4 == 0), "{partition:?}");
            assert_eq!(partition.hosts.iter().map(ExactSizeIterator::len).sum::<usize>(), 20);
            let links = partition.shares.iter().map(|share| share.links.len()).sum::<usize>();
            let switches = partition.shares.iter().map(|share| share.switches.len()).sum::<usize>();
            assert_eq!((links, switches), (topology.links() as usize, 8));
        }
    }
}
