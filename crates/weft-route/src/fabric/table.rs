//! One router's routes, flattened: the address space is divided where the longest prefix changes, so that a lookup is
//! one binary search, whatever the prefix lengths are.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use weft_topo::hash::linux;
use weft_units::prefetch;

use super::LinkId;
use super::action::RangeAction;
use super::address::Address;
use super::group::{Group, modulo};
use super::hash::Hash;
use crate::installed::Prefix;

/// The forwarding decision of a router for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forward {
    /// The packet is sent on a link.
    Link(LinkId),
    /// There is no route.
    NoRoute,
    /// The route is of type `unreachable`.
    Unreachable,
    /// The route drops the packet silently.
    Blackhole,
}

/// A flattened routing table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(super) hash: Hash,
    /// By range, the index of a group or one of the constants below.
    entries: Vec<u32>,
    pub(super) groups: Vec<Option<Group>>,
}

/// The part of a routing table that path lookups read at every hop. The tables of a large fabric do not fit into the
/// caches, so the cost of a lookup is the number of cache lines it waits for: the ends of the search, and one action.
#[derive(Clone, Debug)]
pub(crate) struct Lookup<A> {
    /// The lowest addresses of ranges, ascending; the first is zero.
    starts: Arc<[A]>,
    /// By range, its action.
    actions: Arc<[RangeAction]>,
    /// The link of the router's first port, to which ports in actions are relative. So routers of one tier that send to
    /// the same addresses by the same ports share their ranges and actions.
    first: LinkId,
}

/// The ranges and actions of all routers, for sharing.
#[derive(Debug)]
pub(super) struct Shared<A> {
    starts: BTreeSet<Arc<[A]>>,
    actions: BTreeSet<Arc<[RangeAction]>>,
}

const CACHE_LINE: usize = 64;
/// Number of cache lines of a table that are prefetched before the search; the tables of most switches are no larger.
const PREFETCHED_LINES: usize = 6;

pub(super) const NO_ROUTE: u32 = u32::MAX;
pub(super) const UNREACHABLE: u32 = u32::MAX - 1;
pub(super) const BLACKHOLE: u32 = u32::MAX - 2;

impl Table {
    /// Builds a table from the routes that are of the family; prefixes are distinct, entries are groups or constants.
    pub(super) fn new<A: Address>(
        hash: Hash,
        groups: Vec<Option<Group>>,
        routes: &[(Prefix, u32)],
        first: LinkId,
    ) -> (Self, Lookup<A>) {
        // A route whose group has no live member is skipped, so the next shorter prefix applies.
        let is_alive = |entry: u32| groups.get(entry as usize).is_none_or(Option::is_some);
        let of_family = |&(prefix, entry): &(Prefix, u32)| {
            let (first, last) = (A::of(prefix.first())?, A::of(prefix.last())?);
            is_alive(entry).then_some((first, last, entry))
        };
        let Ranges { starts, entries } = Ranges::of(routes.iter().filter_map(of_family).collect());
        let action = |&entry: &u32| match entry {
            NO_ROUTE => RangeAction::NoRoute,
            UNREACHABLE => RangeAction::Unreachable,
            BLACKHOLE => RangeAction::Blackhole,
            group => {
                let known = groups[group as usize].as_ref().expect("dead groups have no route");
                known.range_action(first).unwrap_or(RangeAction::Group(group))
            }
        };
        let actions = entries.iter().map(action).collect();
        let lookup = Lookup { starts: starts.into(), actions, first };
        (Self { hash, entries, groups }, lookup)
    }

    /// Returns the entry of a range returned by [`Lookup::range`].
    pub(super) fn entry(&self, range: usize) -> u32 {
        self.entries[range]
    }
}

/// Address ranges under construction.
struct Ranges<A> {
    starts: Vec<A>,
    entries: Vec<u32>,
}

impl<A: Address> Ranges<A> {
    /// Builds ranges from the first and last addresses of prefixes.
    fn of(mut routes: Vec<(A, A, u32)>) -> Self {
        // Among prefixes that begin at one address, the wider come first.
        routes.sort_unstable_by_key(|&(first, last, _)| (first, core::cmp::Reverse(last)));
        let mut ranges = Self { starts: vec![A::default()], entries: vec![NO_ROUTE] };
        // The prefixes that contain the current address, the narrowest last.
        let mut open: Vec<(A, u32)> = Vec::new();
        for (first, last, entry) in routes {
            ranges.close(&mut open, Some(first));
            ranges.begin(first, entry);
            open.push((last, entry));
        }
        ranges.close(&mut open, None);
        ranges
    }

    /// Ends prefixes that end before `until`; the range after each has the entry of the surrounding prefix.
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

impl<A: Address> Lookup<A> {
    /// Returns the index of the range that contains an address.
    #[inline]
    pub(super) fn range(&self, address: A) -> usize {
        self.starts.partition_point(|&start| start <= address) - 1
    }

    /// Prefetches the memory that [`Self::range`] reads.
    #[inline]
    pub(super) fn prefetch_ranges(&self) {
        // The search of a larger table reads few of its lines, and they are not known in advance.
        let max_addresses = PREFETCHED_LINES * CACHE_LINE / size_of::<A>();
        self.starts
            .iter()
            .take(max_addresses)
            .step_by(CACHE_LINE / size_of::<A>())
            .for_each(prefetch);
    }

    /// Prefetches the memory that [`Self::forward`] reads for a range.
    #[inline]
    pub(super) fn prefetch_action(&self, range: usize) {
        prefetch(&self.actions[range]);
    }

    /// Returns the forwarding decision for destinations in a range. The packet is hashed, and `table` is read, only if
    /// there is a choice to make.
    #[inline]
    pub(super) fn forward(
        &self,
        table: &Table,
        range: usize,
        value: impl FnOnce() -> u32,
    ) -> Forward {
        let port = match self.actions[range] {
            RangeAction::Port(port) => port,
            RangeAction::Threshold { ports, first } => {
                row(first, linux::select(value(), usize::from(ports)))
            }
            RangeAction::Modulo { ports, first } => row(first, modulo(value(), usize::from(ports))),
            RangeAction::Group(group) => {
                let known = table.groups[group as usize].as_ref();
                let known = known.expect("dead groups have no route");
                return Forward::Link(known.select(if known.chooses() { value() } else { 0 }));
            }
            RangeAction::NoRoute => return Forward::NoRoute,
            RangeAction::Unreachable => return Forward::Unreachable,
            RangeAction::Blackhole => return Forward::Blackhole,
        };
        Forward::Link(LinkId(self.first.0 + port))
    }

    /// Uses the ranges and actions of another router where they are equal.
    pub(super) fn share(&mut self, shared: &mut Shared<A>) {
        share(&mut self.starts, &mut shared.starts);
        share(&mut self.actions, &mut shared.actions);
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
        Self { starts: BTreeSet::new(), actions: BTreeSet::new() }
    }
}

/// Returns the port at that place in a row of consecutive ports.
#[expect(clippy::cast_possible_truncation, reason = "the row has fewer than 2^16 ports")]
const fn row(first: u32, place: usize) -> u32 {
    first + place as u32
}
