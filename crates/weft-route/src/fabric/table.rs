//! One router's routes, flattened: the address space cut where the longest prefix changes, so that
//! a lookup is one binary search whatever lengths the prefixes have.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use weft_topo::hash::linux;

use super::LinkId;
use super::family::Address;
use super::group::{Group, modulo};
use super::hash::Hash;
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
pub(crate) struct Table {
    pub(super) hash: Hash,
    /// By range: a group, or one of the constants below.
    entries: Vec<u32>,
    pub(super) groups: Vec<Option<Group>>,
}

/// Of a routing table what following flows touches at every hop. A large fabric's tables are in no cache, so what
/// counts is how many lines of memory a lookup waits for: the ends of the search, and one way.
#[derive(Clone, Debug)]
pub(crate) struct Front<A> {
    /// Lowest addresses of ranges, ascending; the first is zero.
    starts: Box<[A]>,
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
    /// A table of those routes to distinct prefixes that are of the family, each with a group or a constant.
    pub(super) fn new<A: Address>(
        hash: Hash,
        groups: Vec<Option<Group>>,
        routes: &[(Prefix, u32)],
    ) -> (Self, Front<A>) {
        // A route whose group is all dead is passed over, so the next shorter prefix counts.
        let is_alive = |entry: u32| groups.get(entry as usize).is_none_or(Option::is_some);
        let of_family = |&(prefix, entry): &(Prefix, u32)| {
            let (first, last) = (A::of(prefix.first())?, A::of(prefix.last())?);
            is_alive(entry).then_some((first, last, entry))
        };
        let Ranges { starts, entries } = Ranges::of(routes.iter().filter_map(of_family).collect());
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
struct Ranges<A> {
    starts: Vec<A>,
    entries: Vec<u32>,
}

impl<A: Address> Ranges<A> {
    /// From the first and last addresses of prefixes.
    fn of(mut routes: Vec<(A, A, u32)>) -> Self {
        // Wider prefixes first where two begin at one address.
        routes.sort_unstable_by_key(|&(first, last, _)| (first, core::cmp::Reverse(last)));
        let mut ranges = Self { starts: vec![A::default()], entries: vec![NO_ROUTE] };
        // The prefixes that the sweep is inside of, the narrowest last.
        let mut open: Vec<(A, u32)> = Vec::new();
        for (first, last, entry) in routes {
            ranges.close(&mut open, Some(first));
            ranges.begin(first, entry);
            open.push((last, entry));
        }
        ranges.close(&mut open, None);
        ranges
    }

    /// Ends prefixes that do not reach `until`; what is around them goes on.
    fn close(&mut self, open: &mut Vec<(A, u32)>, until: Option<A>) {
        while let Some(&(last, _)) = open.last()
            && until.is_none_or(|until| last < until)
        {
            open.pop();
            if let Some(next) = last.next() {
                self.begin(next, open.last().map_or(NO_ROUTE, |&(_, entry)| entry));
            }
        }
    }

    fn begin(&mut self, start: A, entry: u32) {
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

impl<A: Address> Front<A> {
    /// The range in which an address is.
    #[inline]
    pub(super) fn range(&self, address: A) -> usize {
        self.starts.partition_point(|&start| start <= address) - 1
    }

    /// What the router does with packets to this address. The packet is hashed, and its table looked at, where it
    /// has a choice to make.
    #[inline]
    pub(super) fn forward(&self, table: &Table, to: A, value: impl FnOnce() -> u32) -> Forward {
        let link = match self.ways[self.range(to)] {
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
