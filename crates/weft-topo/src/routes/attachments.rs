//! The live cables between hosts and switches, and which hosts share them all.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::Destination;
use crate::failure::Failures;
use crate::graph::{LinkId, NodeId, Topology, narrow};

/// The live cables between hosts and switches, by host.
#[derive(Clone, Debug)]
pub(super) struct Attachments {
    /// Host `h` has entries `first[h]..first[h + 1]`, sorted by switch.
    first: Vec<u32>,
    switches: Vec<NodeId>,
    /// The links from the switch down to the host.
    down: Vec<LinkId>,
    /// Cables between a host and a switch, at most.
    pub(super) most: u32,
}

impl Attachments {
    pub(super) fn new(topology: &Topology, failures: &Failures) -> Self {
        let mut all = Self { first: vec![0], switches: Vec::new(), down: Vec::new(), most: 0 };
        for host in topology.host_ids() {
            let live = topology.ports(host).iter().filter(|&&up| failures.is_up(topology, up));
            let mut cables: Vec<_> = live.map(|up| (topology.link(*up).to, up.reverse())).collect();
            cables.sort_unstable();
            for same in cables.chunk_by(|one, other| one.0 == other.0) {
                all.most = all.most.max(narrow(same.len()));
            }
            for (switch, down) in cables {
                all.switches.push(switch);
                all.down.push(down);
            }
            all.first.push(narrow(all.down.len()));
        }
        all
    }

    fn range(&self, host: NodeId) -> core::ops::Range<usize> {
        self.first[host.index()] as usize..self.first[host.index() + 1] as usize
    }

    pub(super) fn of(&self, host: NodeId) -> impl Iterator<Item = (NodeId, LinkId)> + '_ {
        let range = self.range(host);
        self.switches[range.clone()].iter().copied().zip(self.down[range].iter().copied())
    }

    /// The cables from `switch`, which has at least one, to `host`.
    pub(super) fn to_host(&self, switch: NodeId, host: NodeId) -> &[LinkId] {
        let range = self.range(host);
        let leaves = &self.switches[range.clone()];
        let start = leaves.iter().take_while(|&&leaf| leaf < switch).count();
        let len = leaves[start..].iter().take_while(|&&leaf| leaf == switch).count();
        &self.down[range][start..start + len]
    }

    /// Every host as switches know it, and each group's hosts.
    pub(super) fn destinations(
        &self,
        group_of: Vec<u32>,
        groups: u32,
    ) -> (Vec<Destination>, Vec<Vec<NodeId>>) {
        let mut hosts_of_group = vec![Vec::new(); groups as usize];
        let destination = |(host, group): (u32, u32)| {
            let hosts = &mut hosts_of_group[group as usize];
            hosts.push(NodeId(host));
            Destination { group, place: narrow(hosts.len() - 1) * (1 + self.most) }
        };
        let destinations = (0..).zip(group_of).map(destination).collect();
        (destinations, hosts_of_group)
    }

    /// Numbers the distinct sets of leaves in order of first host: each host's group, each
    /// group's leaves.
    pub(super) fn groups(&self) -> (Vec<u32>, Vec<Vec<NodeId>>) {
        let mut numbers: BTreeMap<Vec<NodeId>, u32> = BTreeMap::new();
        let mut leaves_of_group = Vec::new();
        let group_of = (0..narrow(self.first.len() - 1)).map(|host| {
            let mut leaves = self.switches[self.range(NodeId(host))].to_vec();
            leaves.dedup();
            *numbers.entry(leaves).or_insert_with_key(|leaves| {
                leaves_of_group.push(leaves.clone());
                narrow(leaves_of_group.len() - 1)
            })
        });
        (group_of.collect(), leaves_of_group)
    }
}
