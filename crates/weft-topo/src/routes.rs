//! Equal-cost routes: for every switch and destination, the output links on shortest paths.
//!
//! This is the converged control plane (BGP or an IGP with ECMP) as a table. It never chooses among
//! the links of a set: a [`hash`](crate::hash) or a switch model does.

mod areas;
mod attachments;
mod search;
mod steer;

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use weft_units::prefetch;

use self::areas::Areas;
use self::attachments::Attachments;
use self::search::Search;
use crate::failure::Failures;
use crate::graph::{LinkId, NodeId, Topology, narrow};

/// An error of [`Routes::compute`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The tables would have more than [`Routes::MAX_ENTRIES`] entries, or more than [`Routes::MAX_AREAS`] areas.
    #[error(
        "the routes of {switches} switches to {groups} destination groups take more than {} entries",
        Routes::MAX_ENTRIES
    )]
    TableTooLarge {
        /// Switches of the topology.
        switches: u32,
        /// Groups of hosts that share their leaves.
        groups: u32,
    },
    /// A host route needs an area of its own, and there are [`Routes::MAX_AREAS`].
    #[error(
        "a route for host {host} alone is one more than {} areas: steer fewer hosts",
        Routes::MAX_AREAS
    )]
    TooManyAreas {
        /// The host's number.
        host: u32,
    },
}

/// The forwarding tables of all switches, for one set of failures.
///
/// Hosts with the same leaves form a *group* and share their routes. Groups whose leaves have the same neighbours form
/// an *area*: the pod of a fat tree, or all of a leaf-spine network. Beyond those neighbours one route leads to the whole
/// area, so a switch's row has one entry for each area (256 bytes for 65,536 hosts in three tiers, where one for each
/// group is 8 KiB), and only the area's own switches have entries for its groups. Equal sets of links of one switch are
/// stored once. Groups and areas depend on the live cables only, as in a fabric that announces host routes and
/// summarises them.
///
/// The lookup of a set has no branch, because a processor cannot predict whether a leaf's next packet goes up or to one
/// of the leaf's own hosts.
#[derive(Clone, Debug)]
pub struct Routes {
    hosts: u32,
    areas: u32,
    groups: u32,
    destinations: Vec<Destination>,
    /// Each host's group.
    group_of: Vec<u32>,
    /// `switches × areas` offsets into `entries`: of an entry or, with [`SPLIT`], of one for each group of the area.
    table: Vec<u32>,
    /// Offsets into `sets`: of a set or, with [`LOCAL`], of a row of sets.
    entries: Vec<u32>,
    /// Each set is its length, stored as a [`LinkId`] so that one cache line holds both, then its links.
    sets: Vec<LinkId>,
    attachments: Attachments,
}

/// A host's fields for lookups.
#[derive(Clone, Copy, Debug)]
struct Destination {
    area: u16,
    /// The position of the host's group in its area.
    member: u16,
    /// Offset of the host's set in a row of sets, which has one set for each host of the group.
    place: u32,
}

/// The forwarding table of one switch, as [`Routes::at`] returns it.
#[derive(Clone, Copy, Debug)]
pub struct SwitchRoutes<'a> {
    destinations: &'a [Destination],
    /// The table's offsets by area.
    row: &'a [u32],
    entries: &'a [u32],
    sets: &'a [LinkId],
}

impl<'a> SwitchRoutes<'a> {
    /// Returns the links for `destination`, as [`Routes::next_links`] does.
    ///
    /// # Panics
    /// Panics if `destination` is not a host of the topology.
    #[inline(always)] // Called at every hop of a simulation.
    pub fn next_links(&self, destination: NodeId) -> &'a [LinkId] {
        let Destination { area, member, place } = self.destinations[destination.index()];
        let entry = self.entries[index_of(self.row[usize::from(area)], member)];
        let is_local = entry / LOCAL;
        let start = (entry % LOCAL + place * is_local) as usize;
        let len = self.sets[start].index();
        &self.sets[start + 1..][..len]
    }
}

/// The flag of an offset in the table that has an entry for each group of the area.
const SPLIT: u32 = 1 << 31;
/// The flag of an entry whose group's hosts are connected to this switch: each has a set of its own.
const LOCAL: u32 = 1 << 31;

/// Returns the index in `entries` of an area's group, from the area's offset in a switch's row.
#[inline(always)]
fn index_of(offset: u32, member: u16) -> usize {
    (offset % SPLIT + u32::from(member) * (offset / SPLIT)) as usize
}

/// Number of table entries in a cache line.
const ENTRIES_PER_LINE: usize = 16;
/// Maximum number of cache lines that [`Routes::prefetch`] fetches.
const MAX_LINES: usize = 16;
/// The first entry, whose set is empty: there is no route.
const UNREACHABLE: u32 = 0;

impl Routes {
    /// Maximum number of entries of all tables together, which take 512 MiB. A three-tier fat tree of 1,048,576 hosts
    /// has 7 million.
    pub const MAX_ENTRIES: u64 = 1 << 27;
    /// Maximum number of areas, those of hosts with routes of their own included.
    pub const MAX_AREAS: u32 = 65_535;

    /// Computes the shortest paths over the nodes and cables that are up.
    ///
    /// # Errors
    /// Returns `TableTooLarge` if the entries exceed [`Self::MAX_ENTRIES`] or a limit on areas.
    pub fn compute(topology: &Topology, failures: &Failures) -> Result<Self, RouteError> {
        let attachments = Attachments::new(topology, failures);
        let (group_of, leaves_of_group) = attachments.groups();
        let (switches, groups) = (topology.switches(), narrow(leaves_of_group.len()));
        let mut search = Search::new(topology, failures);
        let Areas { list: areas, of_group } = Areas::new(&leaves_of_group, &search);
        let whole = u64::from(switches) * areas.len() as u64;
        let entries = whole + areas.iter().map(|area| area.entries(&leaves_of_group)).sum::<u64>();
        if entries > Self::MAX_ENTRIES || areas.len() > Self::MAX_AREAS as usize {
            return Err(RouteError::TableTooLarge { switches, groups });
        }
        let (destinations, hosts_of_group) = attachments.destinations(&group_of, &of_group);
        let mut table = vec![UNREACHABLE; switches as usize * areas.len()];
        for (index, area) in areas.iter().enumerate() {
            let at = |switch: u32| switch as usize * areas.len() + index;
            search.run(&leaves_of_group[area.groups[0] as usize], |switch, entry| {
                table[at(switch)] = entry;
            });
            area.split(&mut search, &leaves_of_group, |switch, offset| table[at(switch)] = offset);
            for (member, &group) in (0..).zip(&area.groups) {
                let hosts = &hosts_of_group[group as usize];
                for &leaf in &leaves_of_group[group as usize] {
                    let cables = hosts.iter().map(|&host| attachments.to_host(leaf, host));
                    let row = search.sets.add_row(cables, attachments.max_cables);
                    let offset = table[at(leaf.0 - topology.hosts())];
                    search.sets.entries[index_of(offset, member)] = LOCAL | row;
                }
            }
        }
        let search::Sets { pool: sets, entries, .. } = search.sets;
        let (hosts, areas) = (topology.hosts(), narrow(areas.len()));
        Ok(Self { hosts, areas, groups, destinations, group_of, table, entries, sets, attachments })
    }

    /// Returns the links on which `switch` sends a packet for `destination`, in port order: the
    /// equal-cost next hops, or the cables to the host itself. Empty if there is no route.
    ///
    /// # Panics
    /// Panics if `switch` is not a switch or `destination` not a host of the topology.
    #[inline(always)] // Called at every hop of a simulation.
    pub fn next_links(&self, switch: NodeId, destination: NodeId) -> &[LinkId] {
        self.at(switch).next_links(destination)
    }

    /// Returns the routes of one switch, for callers with many packets at that switch.
    ///
    /// # Panics
    /// Panics if `switch` is not a switch of the topology.
    #[inline(always)]
    pub fn at(&self, switch: NodeId) -> SwitchRoutes<'_> {
        let Self { destinations, entries, sets, .. } = self;
        SwitchRoutes { destinations, row: self.row(switch), entries, sets }
    }

    /// Returns a switch's offsets by area.
    #[inline(always)]
    fn row(&self, switch: NodeId) -> &[u32] {
        let areas = self.areas as usize;
        &self.table[(switch.0 - self.hosts) as usize * areas..][..areas]
    }

    /// Returns the number of `destination`'s group, whose hosts share their routes.
    ///
    /// # Panics
    /// Panics if `destination` is not a host of the topology.
    #[inline]
    pub fn group(&self, destination: NodeId) -> u32 {
        self.group_of[destination.index()]
    }

    /// Prefetches the table's offsets that [`Self::next_links`] reads for `switch`.
    #[inline]
    pub fn prefetch(&self, switch: NodeId) {
        self.row(switch).chunks(ENTRIES_PER_LINE).take(MAX_LINES).for_each(prefetch);
    }

    /// Returns the links on which `source` can send a packet that reaches `destination`: its ports in
    /// port order, without those that are down or lead to a plane without the destination.
    ///
    /// # Panics
    /// Panics if either is not a host of the topology.
    pub fn first_links(
        &self,
        source: NodeId,
        destination: NodeId,
    ) -> impl Iterator<Item = LinkId> + '_ {
        let mut ports: Vec<_> = self
            .attachments
            .of(source)
            .filter(|&(switch, _)| !self.next_links(switch, destination).is_empty())
            .map(|(_, down)| down.reverse())
            .collect();
        ports.sort_unstable();
        ports.into_iter()
    }

    /// Returns `true` if a path leads from a port of `source` to `destination`.
    ///
    /// # Panics
    /// Panics if either is not a host of the topology.
    pub fn reaches(&self, source: NodeId, destination: NodeId) -> bool {
        self.first_links(source, destination).next().is_some()
    }

    /// Returns the number of paths of this table from `source` to `destination`, over all ports.
    ///
    /// # Panics
    /// Panics if either is not a host of the topology.
    pub fn path_count(&self, topology: &Topology, source: NodeId, destination: NodeId) -> u64 {
        let mut known = BTreeMap::new();
        self.first_links(source, destination)
            .map(|link| self.paths_from(topology, topology.link(link).to, destination, &mut known))
            .sum()
    }

    fn paths_from(
        &self,
        topology: &Topology,
        at: NodeId,
        destination: NodeId,
        known: &mut BTreeMap<NodeId, u64>,
    ) -> u64 {
        if at == destination {
            return 1;
        }
        if let Some(&count) = known.get(&at) {
            return count;
        }
        let next = self.next_links(at, destination);
        let count = next
            .iter()
            .map(|&link| self.paths_from(topology, topology.link(link).to, destination, known))
            .sum();
        known.insert(at, count);
        count
    }

    /// Returns the paths of this table from `source` to `destination`, each as its links from the
    /// source's port to the destination, in order of port, then next hop. The number of paths grows with each tier
    /// ([`Self::path_count`]), so a caller collects only the paths that it needs.
    ///
    /// # Panics
    /// Panics if either is not a host of the topology.
    pub fn paths<'a>(
        &'a self,
        topology: &'a Topology,
        source: NodeId,
        destination: NodeId,
    ) -> Paths<'a> {
        let mut first: Vec<_> = self.first_links(source, destination).collect();
        first.reverse();
        Paths { routes: self, topology, destination, path: Vec::new(), untried: vec![first] }
    }
}

/// A depth-first iterator over all equal-cost paths, as [`Routes::paths`] returns it.
#[derive(Debug)]
pub struct Paths<'a> {
    routes: &'a Routes,
    topology: &'a Topology,
    destination: NodeId,
    path: Vec<LinkId>,
    /// The links not yet followed at each depth, in reverse order.
    untried: Vec<Vec<LinkId>>,
}

impl Iterator for Paths<'_> {
    type Item = Vec<LinkId>;

    fn next(&mut self) -> Option<Vec<LinkId>> {
        loop {
            let depth = self.untried.len().checked_sub(1)?;
            self.path.truncate(depth);
            let Some(link) = self.untried[depth].pop() else {
                self.untried.pop();
                continue;
            };
            self.path.push(link);
            let at = self.topology.link(link).to;
            if at == self.destination {
                return Some(self.path.clone());
            }
            let next = self.routes.next_links(at, self.destination);
            self.untried.push(next.iter().rev().copied().collect());
        }
    }
}

#[cfg(test)]
mod tests;
