//! The next hops between switches, in a table that fits into CPU caches.
//!
//! Routes have one set of links for each switch and group of hosts: 25.8 million for a fat tree of three tiers with
//! 131,072 hosts (8,076 switches, 3,197 groups), read at random for every hop of every port that is tried. But most
//! groups of a switch share one set, or each block of adjacent groups has one: a leaf sends everything up, an
//! aggregation switch everything but its own pod's groups, a core switch each pod's groups over one link. So a row
//! stores the set of most groups, and the others by blocks of equal length.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use weft_topo::{LinkId, NodeId, Routes, Topology};

/// The next hops of all switches.
#[derive(Debug)]
pub(super) struct Hops {
    rows: Vec<Row>,
    /// One set for each block of each row.
    entries: Vec<Set>,
    /// The pool: all sets, one after the other.
    links: Vec<LinkId>,
    /// The node at the end of each link of the pool.
    ends: Vec<NodeId>,
}

/// A set's range in the pool. Its length is stored here to avoid a second memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Set {
    start: u32,
    len: u32,
}

/// The sets of one switch by group.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// The first group whose set differs from that of most groups.
    first: u32,
    /// Number of blocks from `first` on.
    blocks: u32,
    /// The reciprocal of a block's length, in units of 2^-32.
    reciprocal: u64,
    /// The set of groups outside the blocks.
    outside: Set,
    /// The index of its first block in `entries`.
    offset: u32,
}

/// The next hop of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next<'f> {
    /// The destination host, which is attached to the switch.
    Host,
    /// One of these links, each with the switch at its end; both are empty if there is no route.
    Switches(&'f [LinkId], &'f [NodeId]),
}

/// The entry of groups whose hosts are attached to the switch.
const HOST: Set = Set { start: u32::MAX, len: 0 };
/// With more groups than this, reciprocals are not exact.
const MAX_EXACT_GROUPS: usize = 1 << 16;

impl Hops {
    pub(super) fn new(topology: &Topology, routes: &Routes) -> Self {
        let groups = topology.host_ids().map(|host| routes.group(host) + 1).max().unwrap_or(0);
        let mut hosts = vec![NodeId(0); groups as usize];
        topology.host_ids().for_each(|host| hosts[routes.group(host) as usize] = host);
        let (rows, entries) = (Vec::new(), Vec::new());
        let mut hops = Self { rows, entries, links: Vec::new(), ends: Vec::new() };
        let mut sets = Vec::with_capacity(hosts.len());
        for switch in topology.switch_ids() {
            let mut known: BTreeMap<&[LinkId], Set> = BTreeMap::new();
            let mut last: (&[LinkId], Set) = (&[], hops.add(topology, &[]));
            sets.clear();
            sets.extend(hosts.iter().map(|&host| {
                let links = routes.next_links(switch, host);
                if !core::ptr::eq(last.0, links) {
                    let set = || hops.add(topology, links);
                    last = (links, *known.entry(links).or_insert_with(set));
                }
                last.1
            }));
            hops.add_row(&sets);
        }
        hops
    }

    /// Adds a set to the pool and returns its range.
    fn add(&mut self, topology: &Topology, links: &[LinkId]) -> Set {
        if links.first().is_some_and(|&link| topology.is_host(topology.link(link).to)) {
            return HOST;
        }
        let set = Set { start: narrow(self.links.len()), len: narrow(links.len()) };
        self.links.extend_from_slice(links);
        self.ends.extend(links.iter().map(|&link| topology.link(link).to));
        set
    }

    fn add_row(&mut self, sets: &[Set]) {
        let outside = most_frequent(sets);
        let differs = |set: &Set| *set != outside;
        let first = sets.iter().position(differs).unwrap_or(0);
        let end = sets.iter().rposition(differs).map_or(first, |last| last + 1);
        let inside = &sets[first..end];
        // Blocks end where sets change, and do not reach beyond the last group that differs.
        let changes = (1..inside.len()).filter(|&at| inside[at] != inside[at - 1]);
        let ends = changes.chain((end < sets.len()).then_some(inside.len()));
        let block = if sets.len() > MAX_EXACT_GROUPS { 1 } else { ends.fold(0, greatest_divisor) };
        let block = if block == 0 { inside.len().max(1) } else { block };
        self.rows.push(Row {
            first: narrow(first),
            blocks: narrow(inside.len().div_ceil(block)),
            reciprocal: (1u64 << 32).div_ceil(block as u64),
            outside,
            offset: narrow(self.entries.len()),
        });
        self.entries.extend(inside.iter().step_by(block));
    }

    /// Returns the next hops at the switch with this index among switches, for a group's hosts.
    #[inline]
    pub(super) fn next(&self, switch: usize, group: u32) -> Next<'_> {
        let set = self.set(switch, group);
        if set == HOST {
            return Next::Host;
        }
        let set = set.start as usize..set.start as usize + set.len as usize;
        Next::Switches(&self.links[set.clone()], &self.ends[set])
    }

    /// Returns the set's range in the pool.
    #[inline]
    fn set(&self, switch: usize, group: u32) -> Set {
        let row = &self.rows[switch];
        // Groups below `first` wrap around to values beyond all blocks.
        let distance = u64::from(group.wrapping_sub(row.first));
        let block = (distance * row.reciprocal) >> 32;
        if block < u64::from(row.blocks) {
            self.entries[row.offset as usize + block as usize]
        } else {
            row.outside
        }
    }
}

/// Returns the set that more than half of the groups have, or an arbitrary one if there is none (Boyer and Moore 1981).
fn most_frequent(sets: &[Set]) -> Set {
    let count = |(candidate, lead), &set| match lead {
        0 => (set, 1),
        _ if set == candidate => (candidate, lead + 1),
        _ => (candidate, lead - 1),
    };
    sets.iter().fold((HOST, 0usize), count).0
}

const fn greatest_divisor(mut a: usize, mut b: usize) -> usize {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).expect("routes' limits keep counts below 2^32")
}

#[cfg(test)]
mod tests {
    use weft_topo::Failures;
    use weft_topo::build::{FatTree, Hpn, LeafSpine, TopologyConfig};
    use weft_units::Seed;

    use super::*;

    /// Compares every switch and host with the routes.
    fn agree(topology: &Topology, failures: &Failures) -> Hops {
        let routes = Routes::compute(topology, failures).unwrap();
        let hops = Hops::new(topology, &routes);
        for (number, switch) in topology.switch_ids().enumerate() {
            for host in topology.host_ids() {
                let links = routes.next_links(switch, host);
                match hops.next(number, routes.group(host)) {
                    Next::Host => {
                        assert!(links.iter().all(|&link| topology.link(link).to == host));
                        assert!(!links.is_empty());
                    }
                    Next::Switches(found, ends) => {
                        assert_eq!(found, links, "{switch:?} to {host:?}");
                        let to = links.iter().map(|&link| topology.link(link).to);
                        assert_eq!(ends, to.collect::<Vec<_>>());
                    }
                }
            }
        }
        hops
    }

    #[test]
    fn hops_are_those_of_the_routes_with_any_failures() {
        let shapes = [
            TopologyConfig::FatTree(FatTree { hosts: 54, tiers: 3, ..FatTree::default() }),
            TopologyConfig::FatTree(FatTree { hosts: 128, tiers: 3, ..FatTree::default() }),
            TopologyConfig::Hpn(Hpn { segments: 3, rails: 2, ..Hpn::default() }),
            TopologyConfig::LeafSpine(LeafSpine::default()),
        ];
        for (number, shape) in (0..).zip(&shapes) {
            let topology = shape.build().unwrap();
            let mut rng = Seed(number).child("failures", 0).rng();
            let mut failures = Failures::none();
            for _ in 0..6 {
                agree(&topology, &failures);
                let links = topology.links() as usize;
                let cable = LinkId(u32::try_from(rng.index(links)).unwrap());
                failures.fail_link(cable);
            }
        }
    }

    #[test]
    fn a_regular_fabric_takes_an_entry_for_each_pod_or_leaf() {
        let shape =
            TopologyConfig::FatTree(FatTree { hosts: 1024, tiers: 3, ..FatTree::default() });
        let topology = shape.build().unwrap();
        let hops = agree(&topology, &Failures::none());
        let routes = Routes::compute(&topology, &Failures::none()).unwrap();
        let groups = topology.host_ids().map(|host| routes.group(host)).max().unwrap() as usize + 1;
        assert!(8 * hops.entries.len() < groups * topology.switches() as usize);
    }

    #[test]
    fn rows_of_every_kind_are_read_back() {
        let mut rng = Seed(7).child("rows", 0).rng();
        for _ in 0..2000 {
            let mut hops = Hops { rows: vec![], entries: vec![], links: vec![], ends: vec![] };
            let (block, sets) = (1 + rng.index(5), 1 + rng.index(40));
            let kinds = 1 + u32::try_from(rng.index(4)).unwrap();
            let row: Vec<Set> = (0..sets)
                .flat_map(|_| vec![rng.index(kinds as usize); block])
                .map(|kind| Set { start: u32::try_from(kind).unwrap(), len: 1 })
                .collect();
            hops.add_row(&row);
            for (group, &set) in (0..).zip(&row) {
                assert_eq!(hops.set(0, group), set, "group {group} of {row:?}");
            }
        }
    }
}
