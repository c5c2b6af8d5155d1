//! One router's routes, flattened: the address space cut where the longest prefix changes, so that
//! a lookup is one binary search whatever lengths the prefixes have.

use alloc::vec;
use alloc::vec::Vec;

use weft_topo::hash::FiveTuple;

use super::LinkId;
use super::group::Group;
use super::hash::{Base, Functions, Hash};
use crate::installed::Prefix;

/// What a router does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forward {
    /// Sends it on.
    Link(LinkId),
    /// Has no route for it.
    NoRoute,
    /// Has a route that says so.
    Unreachable,
    /// Drops it silently.
    Blackhole,
}

/// A flattened routing table.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) hash: Hash,
    /// Lowest addresses of ranges, ascending; the first is zero.
    starts: Vec<u32>,
    /// By range: a group, or one of the constants below.
    entries: Vec<u32>,
    pub(super) groups: Vec<Option<Group>>,
}

pub(super) const NO_ROUTE: u32 = u32::MAX;
pub(super) const UNREACHABLE: u32 = u32::MAX - 1;
pub(super) const BLACKHOLE: u32 = u32::MAX - 2;

impl Table {
    /// A table of routes to distinct prefixes, each with a group or a constant.
    pub(super) fn new(
        hash: Hash,
        groups: Vec<Option<Group>>,
        mut routes: Vec<(Prefix, u32)>,
    ) -> Self {
        // A route whose group is all dead is passed over, so the next shorter prefix counts.
        routes.retain(|&(_, entry)| groups.get(entry as usize).is_none_or(Option::is_some));
        // Wider prefixes first where two begin at one address.
        routes.sort_unstable_by_key(|(prefix, _)| (prefix.first(), prefix.len()));
        let mut table = Self { hash, starts: vec![0], entries: vec![NO_ROUTE], groups };
        // The prefixes that the sweep is inside of, the narrowest last.
        let mut open: Vec<(u32, u32)> = Vec::new();
        for (prefix, entry) in routes {
            table.close(&mut open, Some(prefix.first()));
            table.begin(prefix.first(), entry);
            open.push((prefix.last(), entry));
        }
        table.close(&mut open, None);
        table
    }

    /// Ends prefixes that do not reach `until`; what is around them goes on.
    fn close(&mut self, open: &mut Vec<(u32, u32)>, until: Option<u32>) {
        while let Some(&(last, _)) = open.last()
            && until.is_none_or(|until| last < until)
        {
            open.pop();
            if let Some(next) = last.checked_add(1) {
                self.begin(next, open.last().map_or(NO_ROUTE, |&(_, entry)| entry));
            }
        }
    }

    fn begin(&mut self, start: u32, entry: u32) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.entries.pop();
        }
        if self.entries.last() != Some(&entry) {
            self.starts.push(start);
            self.entries.push(entry);
        }
    }

    /// The entry for an address.
    #[inline]
    pub(super) fn entry(&self, address: u32) -> u32 {
        let after = self.starts.partition_point(|&start| start <= address);
        self.entries[after - 1]
    }

    #[inline]
    pub(super) fn forward(
        &self,
        functions: &Functions,
        tuple: &FiveTuple,
        base: &mut Base,
    ) -> Forward {
        match self.entry(tuple.dst) {
            NO_ROUTE => Forward::NoRoute,
            UNREACHABLE => Forward::Unreachable,
            BLACKHOLE => Forward::Blackhole,
            group => {
                let group =
                    self.groups[group as usize].as_ref().expect("dead groups have no route");
                let value =
                    if group.chooses() { functions.value(&self.hash, tuple, base) } else { 0 };
                Forward::Link(group.select(value))
            }
        }
    }
}
