//! One router's routes, flattened: the address space cut where the longest prefix changes, so that
//! a lookup is one binary search whatever lengths the prefixes have.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use weft_topo::hash::linux;
use weft_units::prefetch;

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
    starts: Arc<[A]>,
    /// By range.
    ways: Arc<[Way]>,
    /// The link of the router's first port, from which ways count: routers of one tier that send to the same
    /// addresses by the same ports share their ranges and ways.
    first: LinkId,
}

/// Ranges and ways that some router has.
#[derive(Debug)]
pub(super) struct Shared<A> {
    starts: BTreeSet<Arc<[A]>>,
    ways: BTreeSet<Arc<[Way]>>,
}

/// Where a range leads, by the router's ports. Nearly all groups are of ports in a row, equally heavy: no memory but
/// this is needed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// To one port.
    Port(u32),
    /// To one of so many ports from the first on, by Linux's thresholds.
    Threshold {
        ports: u16,
        first: u32,
    },
    /// The same, by a switch chip's modulus.
    Modulo {
        ports: u16,
        first: u32,
    },
    /// To a group that has to be asked.
    Group(u32),
    NoRoute,
    Unreachable,
    Blackhole,
}

const CACHE_LINE: usize = 64;
/// Lines of a table that are fetched before it is searched: those of most switches' tables are no more.
const FETCHED: usize = 6;

pub(super) const NO_ROUTE: u32 = u32::MAX;
pub(super) const UNREACHABLE: u32 = u32::MAX - 1;
pub(super) const BLACKHOLE: u32 = u32::MAX - 2;

impl Table {
    /// A table of those routes to distinct prefixes that are of the family, each with a group or a constant.
    pub(super) fn new<A: Address>(
        hash: Hash,
        groups: Vec<Option<Group>>,
        routes: &[(Prefix, u32)],
        first: LinkId,
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
                known.way(first).unwrap_or(Way::Group(group))
            }
        };
        let ways = entries.iter().map(way).collect();
        let front = Front { starts: starts.into(), ways, first };
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

    /// Begins to fetch what [`Self::range`] reads.
    #[inline]
    pub(super) fn fetch_ranges(&self) {
        // Tables of many ranges are searched in few of their lines, and nobody knows in which.
        let most = FETCHED * CACHE_LINE / size_of::<A>();
        self.starts.iter().take(most).step_by(CACHE_LINE / size_of::<A>()).for_each(prefetch);
    }

    /// Begins to fetch what [`Self::forward`] reads for a range.
    #[inline]
    pub(super) fn fetch_way(&self, range: usize) {
        prefetch(&self.ways[range]);
    }

    /// What the router does with packets to addresses in a range. The packet is hashed, and its table looked at,
    /// where it has a choice to make.
    #[inline]
    pub(super) fn forward(
        &self,
        table: &Table,
        range: usize,
        value: impl FnOnce() -> u32,
    ) -> Forward {
        let port = match self.ways[range] {
            Way::Port(port) => port,
            Way::Threshold { ports, first } => {
                row(first, linux::select(value(), usize::from(ports)))
            }
            Way::Modulo { ports, first } => row(first, modulo(value(), usize::from(ports))),
            Way::Group(group) => {
                let known = table.groups[group as usize].as_ref();
                let known = known.expect("dead groups have no route");
                return Forward::Link(known.select(if known.chooses() { value() } else { 0 }));
            }
            Way::NoRoute => return Forward::NoRoute,
            Way::Unreachable => return Forward::Unreachable,
            Way::Blackhole => return Forward::Blackhole,
        };
        Forward::Link(LinkId(self.first.0 + port))
    }

    /// Takes what another router has already, where that is the same.
    pub(super) fn share(&mut self, shared: &mut Shared<A>) {
        share(&mut self.starts, &mut shared.starts);
        share(&mut self.ways, &mut shared.ways);
    }
}

fn share<T: Ord>(mine: &mut Arc<[T]>, all: &mut BTreeSet<Arc<[T]>>) {
    match all.get(&mine[..]) {
        Some(same) => *mine = Arc::clone(same),
        None => drop(all.insert(Arc::clone(mine))),
    }
}

impl<A> Default for Shared<A> {
    fn default() -> Self {
        Self { starts: BTreeSet::new(), ways: BTreeSet::new() }
    }
}

/// The port of that place in a row.
#[expect(clippy::cast_possible_truncation, reason = "the row has fewer than 2^16 ports")]
const fn row(first: u32, place: usize) -> u32 {
    first + place as u32
}
