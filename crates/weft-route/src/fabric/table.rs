//! One router's routes, flattened: the address space cut where the longest prefix changes, so that
//! a lookup is one binary search whatever lengths the prefixes have.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use weft_topo::hash::{FiveTuple, linux};

use super::LinkId;
use super::group::{Group, modulo};
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
    /// By range: a group, or one of the constants below.
    entries: Vec<u32>,
    pub(super) groups: Vec<Option<Group>>,
}

/// Of a routing table what following flows touches at every hop. A large fabric's tables are in no cache, so what
/// counts is how many lines of memory a lookup waits for: the ends of the search, and one way.
#[derive(Clone, Debug)]
pub(super) struct Front {
    /// Lowest addresses of ranges, ascending; the first is zero.
    starts: Box<[u32]>,
    /// By range.
    ways: Box<[Way]>,
}

/// Where a range leads. Nearly all groups are of links in a row, equally heavy: no memory but this is needed then.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// To one link.
    Link(LinkId),
    /// To one of so many links from the first on, by Linux's thresholds.
    Threshold {
        links: u16,
        first: LinkId,
    },
    /// The same, by a switch chip's modulus.
    Modulo {
        links: u16,
        first: LinkId,
    },
    /// To a group that has to be asked.
    Group(u32),
    NoRoute,
    Unreachable,
    Blackhole,
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
    ) -> (Self, Front) {
        // A route whose group is all dead is passed over, so the next shorter prefix counts.
        routes.retain(|&(_, entry)| groups.get(entry as usize).is_none_or(Option::is_some));
        let Ranges { starts, entries } = Ranges::of(routes);
        let way = |&entry: &u32| match entry {
            NO_ROUTE => Way::NoRoute,
            UNREACHABLE => Way::Unreachable,
            BLACKHOLE => Way::Blackhole,
            group => {
                let known = groups[group as usize].as_ref().expect("dead groups have no route");
                known.way().unwrap_or(Way::Group(group))
            }
        };
        let front = Front { starts: starts.into(), ways: entries.iter().map(way).collect() };
        (Self { hash, entries, groups }, front)
    }

    /// The entry of a range that [`Front::range`] gave.
    pub(super) fn entry(&self, range: usize) -> u32 {
        self.entries[range]
    }
}

/// Addresses cut into ranges, while they are.
struct Ranges {
    starts: Vec<u32>,
    entries: Vec<u32>,
}

impl Ranges {
    fn of(mut routes: Vec<(Prefix, u32)>) -> Self {
        // Wider prefixes first where two begin at one address.
        routes.sort_unstable_by_key(|(prefix, _)| (prefix.first(), prefix.len()));
        let mut ranges = Self { starts: vec![0], entries: vec![NO_ROUTE] };
        // The prefixes that the sweep is inside of, the narrowest last.
        let mut open: Vec<(u32, u32)> = Vec::new();
        for (prefix, entry) in routes {
            ranges.close(&mut open, Some(prefix.first()));
            ranges.begin(prefix.first(), entry);
            open.push((prefix.last(), entry));
        }
        ranges.close(&mut open, None);
        ranges
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
}

impl Front {
    /// The range in which an address is.
    #[inline]
    pub(super) fn range(&self, address: u32) -> usize {
        self.starts.partition_point(|&start| start <= address) - 1
    }

    /// What the router does with a packet. Its table is looked at where it has a choice to make.
    #[inline]
    pub(super) fn forward(
        &self,
        table: &Table,
        functions: &Functions,
        tuple: &FiveTuple,
        base: &mut Base,
    ) -> Forward {
        let mut value = || functions.value(&table.hash, tuple, base);
        let link = match self.ways[self.range(tuple.dst)] {
            Way::Link(link) => link,
            Way::Threshold { links, first } => {
                row(first, linux::select(value(), usize::from(links)))
            }
            Way::Modulo { links, first } => row(first, modulo(value(), usize::from(links))),
            Way::Group(group) => {
                let known = table.groups[group as usize].as_ref();
                let known = known.expect("dead groups have no route");
                known.select(if known.chooses() { value() } else { 0 })
            }
            Way::NoRoute => return Forward::NoRoute,
            Way::Unreachable => return Forward::Unreachable,
            Way::Blackhole => return Forward::Blackhole,
        };
        Forward::Link(link)
    }
}

/// The link of that place in a row.
#[expect(clippy::cast_possible_truncation, reason = "the row has fewer than 2^16 links")]
const fn row(first: LinkId, place: usize) -> LinkId {
    LinkId(first.0 + place as u32)
}
