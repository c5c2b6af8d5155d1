//! What following a packet needs of its family, IPv4 or IPv6: addresses as numbers, every router's table,
//! and who has which address.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weft_topo::hash::{FiveTuple, FiveTuple6};
use weft_units::{prefetch, prefetch_all};

use super::hash::{Base, Functions, Hash};
use super::table::{Forward, Front, Shared, Table};
use super::{Fabric, HostId, RouterId};

/// An address as a number, by which tables are cut.
pub(crate) trait Address: Copy + Ord + Default {
    /// None for an address of the other family.
    fn of(address: IpAddr) -> Option<Self>;
    /// The same for people.
    fn ip(self) -> IpAddr;
    /// The address after it; none after the last.
    fn next(self) -> Option<Self>;
}

impl Address for u32 {
    fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(it) => Some(it.to_bits()),
            IpAddr::V6(_) => None,
        }
    }

    fn ip(self) -> IpAddr {
        Ipv4Addr::from_bits(self).into()
    }

    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
}

impl Address for u128 {
    fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(it) => Some(it.to_bits()),
        }
    }

    fn ip(self) -> IpAddr {
        Ipv6Addr::from_bits(self).into()
    }

    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
}

/// One family's addresses and tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Family<A> {
    /// By router, what every packet looks at.
    pub(super) fronts: Vec<Front<A>>,
    /// By router, the rest.
    pub(super) tables: Vec<Table>,
    /// By host, its address; zero, which is no host's, where it has none of this family.
    pub(super) addresses: Vec<A>,
    /// Addresses in order, with whose they are.
    hosts: Vec<(A, HostId)>,
}

impl<A: Address> Family<A> {
    /// Notes the next host's address.
    pub(super) fn add(&mut self, host: HostId, address: Option<A>) {
        self.addresses.push(address.unwrap_or_default());
        self.hosts.extend(address.map(|address| (address, host)));
    }

    /// Puts addresses in order, so that hosts are found; the first address that two hosts have, if any.
    pub(super) fn sort(&mut self) -> Option<(A, HostId, HostId)> {
        self.hosts.sort_unstable();
        let twice = self.hosts.windows(2).find(|pair| pair[0].0 == pair[1].0);
        twice.map(|pair| (pair[0].0, pair[0].1, pair[1].1))
    }

    /// Adds the next router's table.
    pub(super) fn push(&mut self, (table, mut front): (Table, Front<A>), shared: &mut Shared<A>) {
        front.share(shared);
        self.tables.push(table);
        self.fronts.push(front);
    }

    /// Gives a router another table.
    pub(super) fn replace(&mut self, router: RouterId, (table, front): (Table, Front<A>)) {
        self.tables[router.index()] = table;
        self.fronts[router.index()] = front;
    }

    pub(super) fn host(&self, address: A) -> Option<HostId> {
        let found = self.hosts.binary_search_by_key(&address, |&(address, _)| address);
        found.ok().map(|place| self.hosts[place].1)
    }

    /// In which range of a router's an address is.
    #[inline]
    pub(crate) fn range(&self, router: RouterId, address: A) -> usize {
        self.fronts[router.index()].range(address)
    }

    /// Begins to fetch a router, of which only the number is known.
    #[inline]
    pub(crate) fn fetch_router(&self, router: RouterId) {
        prefetch(&self.fronts[router.index()]);
        prefetch_all(&self.tables[router.index()].hash);
    }

    /// Begins to fetch what searching a router's ranges reads.
    #[inline]
    pub(crate) fn fetch_ranges(&self, router: RouterId) {
        self.fronts[router.index()].fetch_ranges();
    }

    /// Begins to fetch what a range of a router's leads to.
    #[inline]
    pub(crate) fn fetch_way(&self, router: RouterId, range: usize) {
        self.fronts[router.index()].fetch_way(range);
    }

    /// Begins to fetch a host's address.
    #[inline]
    pub(crate) fn fetch_address(&self, host: HostId) {
        prefetch(&self.addresses[host.index()]);
    }

    /// What a router does with addresses like this one: its table, and the entry there.
    pub(super) fn entry(&self, router: RouterId, address: A) -> (&Table, u32) {
        let table = &self.tables[router.index()];
        (table, table.entry(self.fronts[router.index()].range(address)))
    }
}

/// A packet as routers see it.
pub(crate) trait Packet: Copy {
    /// The number its addresses are.
    type Address: Address;

    fn src(&self) -> Self::Address;
    fn dst(&self) -> Self::Address;
    fn family(fabric: &Fabric) -> &Family<Self::Address>;

    /// The number with which a router chooses among next hops.
    fn value(&self, functions: &Functions, hash: &Hash, base: &mut Base) -> u32;

    /// What a router does with it.
    #[inline]
    fn forward(&self, fabric: &Fabric, at: RouterId, base: &mut Base) -> Forward {
        self.forward_in(fabric, at, Self::family(fabric).range(at, self.dst()), base)
    }

    /// What a router does with it, whose destination is in this range of the router's.
    #[inline]
    fn forward_in(&self, fabric: &Fabric, at: RouterId, range: usize, base: &mut Base) -> Forward {
        let family = Self::family(fabric);
        let table = &family.tables[at.index()];
        let value = || self.value(&fabric.functions, &table.hash, base);
        family.fronts[at.index()].forward(table, range, value)
    }

    /// Whether it is for this host.
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
