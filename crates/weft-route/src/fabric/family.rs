//! The state of one address family, IPv4 or IPv6: addresses as numbers, every router's table, and the host of each
//! address.

use alloc::vec::Vec;

use weft_topo::hash::{FiveTuple, FiveTuple6};
use weft_units::{prefetch, prefetch_all};

use super::address::Address;
use super::hash::{Base, Functions, Hash};
use super::table::{Forward, Lookup, Shared, Table};
use super::{Fabric, HostId, RouterId};

/// One family's addresses and tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Family<A> {
    /// By router, the part of its table that every lookup reads.
    pub(super) lookups: Vec<Lookup<A>>,
    /// By router, the rest of its table.
    pub(super) tables: Vec<Table>,
    /// By host, its address; zero, which no host has, if it has none of this family.
    pub(super) addresses: Vec<A>,
    /// Addresses in order, with their hosts.
    hosts: Vec<(A, HostId)>,
}

impl<A: Address> Family<A> {
    /// Adds the next host's address.
    pub(super) fn add(&mut self, host: HostId, address: Option<A>) {
        self.addresses.push(address.unwrap_or_default());
        self.hosts.extend(address.map(|address| (address, host)));
    }

    /// Sorts addresses for lookup. Returns the first address that two hosts have, if there is one.
    pub(super) fn sort(&mut self) -> Option<(A, HostId, HostId)> {
        self.hosts.sort_unstable();
        let twice = self.hosts.windows(2).find(|pair| pair[0].0 == pair[1].0);
        twice.map(|pair| (pair[0].0, pair[0].1, pair[1].1))
    }

    /// Adds the next router's table.
    pub(super) fn push(&mut self, (table, mut lookup): (Table, Lookup<A>), shared: &mut Shared<A>) {
        lookup.share(shared);
        self.tables.push(table);
        self.lookups.push(lookup);
    }

    /// Replaces a router's table.
    pub(super) fn replace(&mut self, router: RouterId, (table, lookup): (Table, Lookup<A>)) {
        self.tables[router.index()] = table;
        self.lookups[router.index()] = lookup;
    }

    pub(super) fn host(&self, address: A) -> Option<HostId> {
        let found = self.hosts.binary_search_by_key(&address, |&(address, _)| address);
        found.ok().map(|place| self.hosts[place].1)
    }

    /// Returns the index of a router's address range that contains an address.
    #[inline]
    pub(crate) fn range(&self, router: RouterId, address: A) -> usize {
        self.lookups[router.index()].range(address)
    }

    /// Prefetches the state of a router.
    #[inline]
    pub(crate) fn prefetch_router(&self, router: RouterId) {
        prefetch(&self.lookups[router.index()]);
        prefetch_all(&self.tables[router.index()].hash);
    }

    /// Prefetches the memory that the search of a router's ranges reads.
    #[inline]
    pub(crate) fn prefetch_ranges(&self, router: RouterId) {
        self.lookups[router.index()].prefetch_ranges();
    }

    /// Prefetches the action of a router's range.
    #[inline]
    pub(crate) fn prefetch_action(&self, router: RouterId, range: usize) {
        self.lookups[router.index()].prefetch_action(range);
    }

    /// Prefetches a host's address.
    #[inline]
    pub(crate) fn prefetch_address(&self, host: HostId) {
        prefetch(&self.addresses[host.index()]);
    }

    /// Returns a router's table and its entry for an address.
    pub(super) fn entry(&self, router: RouterId, address: A) -> (&Table, u32) {
        let table = &self.tables[router.index()];
        (table, table.entry(self.lookups[router.index()].range(address)))
    }
}

/// A packet's header fields, as routers read them.
pub(crate) trait Packet: Copy {
    /// The number type of its addresses.
    type Address: Address;

    fn src(&self) -> Self::Address;
    fn dst(&self) -> Self::Address;
    fn family(fabric: &Fabric) -> &Family<Self::Address>;

    /// Returns the hash by which a router selects a next hop.
    fn value(&self, functions: &Functions, hash: &Hash, base: &mut Base) -> u32;

    /// Returns the forwarding decision of a router.
    #[inline]
    fn forward(&self, fabric: &Fabric, at: RouterId, base: &mut Base) -> Forward {
        self.forward_in(fabric, at, Self::family(fabric).range(at, self.dst()), base)
    }

    /// Returns the forwarding decision of a router for a destination in this range of its table.
    #[inline]
    fn forward_in(&self, fabric: &Fabric, at: RouterId, range: usize, base: &mut Base) -> Forward {
        let family = Self::family(fabric);
        let table = &family.tables[at.index()];
        let value = || self.value(&fabric.functions, &table.hash, base);
        family.lookups[at.index()].forward(table, range, value)
    }

    /// Returns `true` if the packet's destination is this host.
    #[inline]
    fn is_for(&self, fabric: &Fabric, host: HostId) -> bool {
        Self::family(fabric).addresses[host.index()] == self.dst()
    }
}

impl Packet for FiveTuple {
    type Address = u32;

    #[inline]
    fn src(&self) -> u32 {
        self.src
    }

    #[inline]
    fn dst(&self) -> u32 {
        self.dst
    }

    #[inline]
    fn family(fabric: &Fabric) -> &Family<u32> {
        &fabric.v4
    }

    #[inline]
    fn value(&self, functions: &Functions, hash: &Hash, base: &mut Base) -> u32 {
        functions.value(hash, self, base)
    }
}

impl Packet for FiveTuple6 {
    type Address = u128;

    #[inline]
    fn src(&self) -> u128 {
        self.src.to_bits()
    }

    #[inline]
    fn dst(&self) -> u128 {
        self.dst.to_bits()
    }

    #[inline]
    fn family(fabric: &Fabric) -> &Family<u128> {
        &fabric.v6
    }

    fn value(&self, _functions: &Functions, hash: &Hash, _base: &mut Base) -> u32 {
        hash.value6(self)
    }
}
