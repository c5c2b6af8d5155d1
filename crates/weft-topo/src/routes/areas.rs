//! The areas of a network: groups of hosts to which all switches beyond the neighbours of their leaves have the same
//! routes.
//!
//! A path that ends at a leaf comes by one of the leaf's neighbours. So if two groups' leaves have the same neighbours,
//! and no leaf is a neighbour of another of its group, every other switch is as far from one group as from the other and
//! has the same next hops for both.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::SPLIT;
use super::search::Search;
use crate::graph::NodeId;

/// An area.
pub(super) struct Area {
    /// Its groups.
    pub(super) groups: Vec<u32>,
    /// The neighbours of its leaves, ascending.
    pub(super) neighbours: Vec<u32>,
}

impl Area {
    /// Returns an upper bound of the number of entries for its groups at its leaves and their neighbours.
    pub(super) fn entries(&self, leaves_of_group: &[Vec<NodeId>]) -> u64 {
        let leaves = self.groups.iter().map(|&group| leaves_of_group[group as usize].len() as u64);
        (leaves.sum::<u64>() + self.neighbours.len() as u64) * self.groups.len() as u64
    }

    /// Calls `enter` with each leaf of the area and each of their neighbours, and the offset of its entries for the
    /// area's groups. A leaf's entries for its own groups are left for the caller.
    pub(super) fn split(
        &self,
        search: &mut Search,
        leaves_of_group: &[Vec<NodeId>],
        mut enter: impl FnMut(u32, u32),
    ) {
        let groups = || self.groups.iter().map(|&group| &leaves_of_group[group as usize]);
        let mut members_of: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (member, leaves) in groups().enumerate() {
            for &leaf in leaves {
                members_of.entry(search.number(leaf)).or_default().push(member);
            }
        }
        let mut links = vec![Vec::new(); self.groups.len()];
        for &switch in &self.neighbours {
            for &(neighbour, link) in search.neighbours(switch) {
                for &member in members_of.get(&neighbour).into_iter().flatten() {
                    links[member].push(link);
                }
            }
            let entries = links.iter().map(|links| search.sets.intern(switch, links)).collect();
            enter(switch, SPLIT | search.sets.add_entries(entries));
            links.iter_mut().for_each(Vec::clear);
        }
        // From a leaf to another group of its area, every neighbour is a next hop.
        for &leaf in members_of.keys() {
            let up: Vec<_> = search.neighbours(leaf).iter().map(|&(_, link)| link).collect();
            let up = search.sets.intern(leaf, &up);
            enter(leaf, SPLIT | search.sets.add_entries(vec![up; self.groups.len()]));
        }
    }
}

/// The areas of a network.
pub(super) struct Areas {
    pub(super) list: Vec<Area>,
    /// Each group's area, and its position there. Areas past the 65,536th share a number; such a network is refused.
    pub(super) of_group: Vec<(u16, u16)>,
}

/// Maximum number of groups of an area; further groups with the same neighbours form another.
const MAX_GROUPS: usize = u16::MAX as usize;

impl Areas {
    /// Returns the areas of these groups, in the order of their first groups.
    pub(super) fn new(leaves_of_group: &[Vec<NodeId>], search: &Search) -> Self {
        let mut areas = Self { list: Vec::new(), of_group: Vec::new() };
        let mut known: BTreeMap<Vec<u32>, usize> = BTreeMap::new();
        for (group, leaves) in (0..).zip(leaves_of_group) {
            let leaves: Vec<u32> = leaves.iter().map(|&leaf| search.number(leaf)).collect();
            let mut neighbours: Vec<u32> = leaves
                .iter()
                .flat_map(|&leaf| search.neighbours(leaf))
                .map(|&(to, _)| to)
                .collect();
            neighbours.sort_unstable();
            neighbours.dedup();
            let adjoin = leaves.iter().any(|leaf| neighbours.binary_search(leaf).is_ok());
            let area = known
                .get(&neighbours)
                .copied()
                .filter(|&area| !adjoin && areas.list[area].groups.len() < MAX_GROUPS);
            let area = area.unwrap_or_else(|| {
                areas.list.push(Area { groups: Vec::new(), neighbours: neighbours.clone() });
                if !adjoin {
                    known.insert(neighbours, areas.list.len() - 1);
                }
                areas.list.len() - 1
            });
            let groups = &mut areas.list[area].groups;
            let number = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
            areas.of_group.push((number(area), number(groups.len())));
            groups.push(group);
        }
        areas
    }
}
