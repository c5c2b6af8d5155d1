//! The search for shortest paths from every switch to one group's leaves, as sets of links, each stored once.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use weft_units::Fnv1a;

use super::UNREACHABLE;
use crate::failure::Failures;
use crate::graph::{LinkId, NodeId, Topology, narrow};

/// A breadth-first search from one group's leaves over the live switch-to-switch links.
pub(super) struct Search {
    /// Offsets: switch `s` has `neighbours[first[s]..first[s + 1]]`, in port order.
    first: Vec<u32>,
    neighbours: Vec<(u32, LinkId)>,
    hosts: u32,
    distance: Vec<u32>,
    queue: VecDeque<u32>,
    next_hops: Vec<LinkId>,
    pub(super) sets: Sets,
}

const UNVISITED: u32 = u32::MAX;

impl Search {
    pub(super) fn new(topology: &Topology, failures: &Failures) -> Self {
        let hosts = topology.hosts();
        let mut first = vec![0];
        let mut neighbours = Vec::new();
        for switch in topology.switch_ids() {
            for &port in topology.ports(switch) {
                let to = topology.link(port).to;
                if !topology.is_host(to) && failures.is_up(topology, port) {
                    neighbours.push((to.0 - hosts, port));
                }
            }
            first.push(narrow(neighbours.len()));
        }
        let switches = topology.switches() as usize;
        Self {
            first,
            neighbours,
            hosts,
            distance: vec![UNVISITED; switches],
            queue: VecDeque::new(),
            next_hops: Vec::new(),
            sets: Sets::new(switches),
        }
    }

    /// Returns a switch's number among the switches.
    pub(super) fn number(&self, switch: NodeId) -> u32 {
        switch.0 - self.hosts
    }

    /// Returns a switch's neighbours and the links to them, in port order.
    pub(super) fn neighbours(&self, switch: u32) -> &[(u32, LinkId)] {
        let (first, end) = (self.first[switch as usize], self.first[switch as usize + 1]);
        &self.neighbours[first as usize..end as usize]
    }

    /// Calls `enter` with each switch other than `leaves` that reaches one of them, and the index of its entry.
    pub(super) fn run(&mut self, leaves: &[NodeId], mut enter: impl FnMut(u32, u32)) {
        self.distance.fill(UNVISITED);
        for leaf in leaves {
            self.distance[leaf.index() - self.hosts as usize] = 0;
            self.queue.push_back(leaf.0 - self.hosts);
        }
        while let Some(switch) = self.queue.pop_front() {
            let here = self.distance[switch as usize];
            let range =
                self.first[switch as usize] as usize..self.first[switch as usize + 1] as usize;
            self.next_hops.clear();
            // Every switch one step nearer got its distance before this switch left the queue, so one
            // pass over the neighbours both finds the next hops and continues the search.
            for &(neighbour, link) in &self.neighbours[range] {
                match self.distance[neighbour as usize] {
                    UNVISITED => {
                        self.distance[neighbour as usize] = here + 1;
                        self.queue.push_back(neighbour);
                    }
                    there if there + 1 == here => self.next_hops.push(link),
                    _ => {}
                }
            }
            if here > 0 {
                enter(switch, self.sets.intern(switch, &self.next_hops));
            }
        }
    }
}

/// A pool of sets of links, each stored once, and the entries that name them.
pub(super) struct Sets {
    pub(super) pool: Vec<LinkId>,
    /// Offsets in `pool`.
    pub(super) entries: Vec<u32>,
    /// The index in `entries` of each switch's sets, by switch, then by fingerprint.
    known: Vec<BTreeMap<u64, u32>>,
}

impl Sets {
    fn new(switches: usize) -> Self {
        let (pool, entries) = (vec![LinkId(0)], vec![UNREACHABLE]);
        Self { pool, entries, known: vec![BTreeMap::new(); switches] }
    }

    /// Adds sets of at most `max_len` links, each in a slot of `1 + max_len` entries, and returns the offset of the
    /// first.
    pub(super) fn add_row<'a>(
        &mut self,
        sets: impl Iterator<Item = &'a [LinkId]>,
        max_len: u32,
    ) -> u32 {
        let start = self.pool.len();
        for links in sets {
            self.pool.push(LinkId(narrow(links.len())));
            self.pool.extend_from_slice(links);
            self.pool.resize(self.pool.len() + max_len as usize - links.len(), LinkId(0));
        }
        narrow(start)
    }

    /// Adds copies of entries, and returns the index of the first.
    pub(super) fn add_entries(&mut self, entries: Vec<u32>) -> u32 {
        let start = narrow(self.entries.len());
        let copies = entries.into_iter().map(|entry| self.entries[entry as usize]);
        let copies: Vec<_> = copies.collect();
        self.entries.extend(copies);
        start
    }

    /// Returns the index of the entry for a switch's set of links.
    pub(super) fn intern(&mut self, switch: u32, links: &[LinkId]) -> u32 {
        // The fingerprint is FNV-1a. A set whose fingerprint another set has gets the next free number.
        let mut fingerprint = Fnv1a::new().with(links.iter().map(|link| link.0)).finish();
        let known = &mut self.known[switch as usize];
        while let Some(&entry) = known.get(&fingerprint) {
            let stored = self.entries[entry as usize] as usize;
            let len = self.pool[stored].index();
            if self.pool[stored + 1..=stored + len] == *links {
                return entry;
            }
            fingerprint = fingerprint.wrapping_add(1);
        }
        let entry = narrow(self.entries.len());
        known.insert(fingerprint, entry);
        self.entries.push(narrow(self.pool.len()));
        self.pool.push(LinkId(narrow(links.len())));
        self.pool.extend_from_slice(links);
        entry
    }
}
