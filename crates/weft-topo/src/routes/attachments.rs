//! The live cables between hosts and switches, and the groups of hosts with the same leaves.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::Destination;
use crate::failure::Failures;
use crate::graph::{LinkId, NodeId, Topology, narrow};

/// The live cables between hosts and switches, by host.
#[derive(Clone, Debug)]
pub(super) struct Attachments {
    /// Offsets: host `h` has the entries `first[h]..first[h + 1]`, sorted by switch.
    first: Vec<u32>,
    switches: Vec<NodeId>,
    /// The links from the switch down to the host.
    down: Vec<LinkId>,
    /// Maximum number of cables between a host and a switch.
    pub(super) max_cables: u32,
}

impl Attachments {
    pub(super) fn new(topology: &Topology, failures: &Failures) -> Self {
        let mut all =
            Self { first: vec![0], switches: Vec::new(), down: Vec::new(), max_cables: 0 };
        for host in topology.host_ids() {
            let live = topology.ports(host).iter().filter(|&&up| failures.is_up(topology, up));
            let mut cables: Vec<_> = live.map(|up| (topology.link(*up).to, up.reverse())).collect();
            cables.sort_unstable();
            for same in cables.chunk_by(|one, other| one.0 == other.0) {
                all.max_cables = all.max_cables.max(narrow(same.len()));
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

    /// Returns the links of the live cables from `switch` to `host`; empty if there is none.
    pub(super) fn to_host(&self, switch: NodeId, host: NodeId) -> &[LinkId] {
        let range = self.range(host);
        let leaves = &self.switches[range.clone()];
        let start = leaves.iter().take_while(|&&leaf| leaf < switch).count();
        let len = leaves[start..].iter().take_while(|&&leaf| leaf == switch).count();
        &self.down[range][start..start + len]
    }

    /// Returns each host's fields for lookups, and each group's hosts; `of_group` is each group's area and its position
    /// there.
    pub(super) fn destinations(
        &self,
        group_of: &[u32],
        of_group: &[(u16, u16)],
    ) -> (Vec<Destination>, Vec<Vec<NodeId>>) {
        let mut hosts_of_group = vec![Vec::new(); of_group.len()];
        let destination = |(host, &group): (u32, &u32)| {
            let hosts = &mut hosts_of_group[group as usize];
            hosts.push(NodeId(host));
            let (area, member) = of_group[group as usize];
            let place = narrow(hosts.len() - 1) * (1 + self.max_cables);
            Destination { area, member, place }
        };
        let destinations = (0..).zip(group_of).map(destination).collect();
        (destinations, hosts_of_group)
    }

    /// Numbers the distinct sets of leaves in order of first host and returns each host's group and
    /// each group's leaves.
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
