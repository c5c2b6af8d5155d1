//! A fabric as its routers forward, in numbers: what [`Installed`] says in names, checked and laid
//! out for following millions of flows.
//!
//! A *link* is one direction of a cable. A router's port has the link on which it sends; a host has
//! one for each of its cables, on which it sends. So every packet's way is a list of [`LinkId`]s.

mod arrival;
mod build;
mod explain;
mod family;
mod group;
mod hash;
mod router;
mod table;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use arrival::Arrival;
pub use explain::{Explanation, Hop, Share};
use family::Family;
pub(crate) use family::Packet;
pub(crate) use hash::Base;
use hash::Functions;
use serde::{Deserialize, Serialize};
pub(crate) use table::Forward;
use weft_units::{BitRate, prefetch};

use crate::flow::FlowRef;
use crate::installed::{Addresses, Installed, InstalledError, Port, Router};

/// A router by its place in [`Installed::routers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouterId(pub u32);

/// A host, in the order of IPv4 addresses; those that have none come last, in the order of IPv6 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// One direction of a cable: ports' links router by router, then hosts' links.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct LinkId(pub u32);

macro_rules! index {
    ($($id:ty),+) => {$(
        impl $id {
            /// The position in an array with one entry each.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    )+};
}
index!(RouterId, HostId, LinkId);

/// What is at an end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A router.
    Router(RouterId),
    /// A host.
    Host(HostId),
    /// No cable.
    Nothing,
}

/// A fabric that is asked for paths again and again.
#[derive(Clone, Debug)]
pub struct Fabric {
    installed: Installed,
    names: BTreeMap<String, RouterId>,
    /// By router, the link of its first port; how many ports there are at the end.
    first_link: Vec<u32>,
    /// By router, its ports' places in the order of their names: as many as there are ports.
    by_name: Vec<u32>,
    /// By link, who sends on it.
    from: Vec<End>,
    /// By link, who receives from it.
    to: Vec<End>,
    /// By link, the link of the other direction.
    reverse: Vec<Option<LinkId>>,
    /// By link, bits a second.
    rates: Vec<u64>,
    /// By link, whether packets pass: both its ends are up.
    passes: Vec<bool>,
    /// By host, its addresses.
    hosts: Vec<Addresses>,
    /// By host, its first link in `links_of_hosts`; how many there are at the end.
    first_of_host: Vec<u32>,
    links_of_hosts: Vec<LinkId>,
    /// By link, what its end is in one word.
    arrivals: Vec<Arrival>,
    v4: Family<u32>,
    v6: Family<u128>,
    functions: Functions,
}

impl Fabric {
    /// Every router with what it has installed.
    pub const fn installed(&self) -> &Installed {
        &self.installed
    }

    /// Every router, by number.
    pub fn router_ids(&self) -> impl Iterator<Item = RouterId> + use<> {
        (0..count(self.installed.routers.len())).map(RouterId)
    }

    /// What a router has installed.
    ///
    /// # Panics
    /// If the fabric has no such router.
    pub fn router(&self, router: RouterId) -> &Router {
        &self.installed.routers[router.index()]
    }

    /// The router of that name.
    pub fn find(&self, name: &str) -> Option<RouterId> {
        self.names.get(name).copied()
    }

    /// Every link.
    pub fn link_ids(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..count(self.to.len())).map(LinkId)
    }

    /// How many links there are.
    pub const fn links(&self) -> usize {
        self.to.len()
    }

    /// The links on which a router sends, one for each port in order.
    ///
    /// # Panics
    /// If the fabric has no such router.
    pub fn links_of(&self, router: RouterId) -> impl Iterator<Item = LinkId> + use<> {
        (self.first_link[router.index()]..self.first_link[router.index() + 1]).map(LinkId)
    }

    /// The link on which the router's port of that interface number sends.
    pub fn link_of_ifindex(&self, router: RouterId, ifindex: u32) -> Option<LinkId> {
        let ports = &self.installed.routers.get(router.index())?.ports;
        let place = ports.iter().position(|port| port.ifindex == ifindex)?;
        Some(LinkId(self.first_link[router.index()] + count(place)))
    }

    /// The link on which the router's port of that name sends.
    pub fn link_of_port(&self, router: RouterId, name: &str) -> Option<LinkId> {
        let ports = &self.installed.routers.get(router.index())?.ports;
        let first = self.first_link[router.index()];
        let by_name = &self.by_name[first as usize..][..ports.len()];
        let found =
            by_name.binary_search_by(|&place| ports[place as usize].name.as_str().cmp(name));
        found.ok().map(|at| LinkId(first + by_name[at]))
    }

    /// The port that sends on a link; none for a host's.
    pub fn port_of(&self, link: LinkId) -> Option<(RouterId, &Port)> {
        let End::Router(router) = self.from[link.index()] else { return None };
        let place = link.0 - self.first_link[router.index()];
        Some((router, &self.installed.routers[router.index()].ports[place as usize]))
    }

    /// Who sends on a link.
    ///
    /// # Panics
    /// If the fabric has no such link.
    pub fn from(&self, link: LinkId) -> End {
        self.from[link.index()]
    }

    /// Who receives from a link.
    ///
    /// # Panics
    /// If the fabric has no such link.
    pub fn to(&self, link: LinkId) -> End {
        self.to[link.index()]
    }

    /// The other direction of the cable; none without a cable.
    ///
    /// # Panics
    /// If the fabric has no such link.
    pub fn reverse(&self, link: LinkId) -> Option<LinkId> {
        self.reverse[link.index()]
    }

    /// What a link carries at most.
    ///
    /// # Panics
    /// If the fabric has no such link.
    pub fn rate(&self, link: LinkId) -> BitRate {
        BitRate::bps(self.rates[link.index()]).expect("rates come from rates, which are not zero")
    }

    /// Begins to fetch what [`Self::rate`] reads.
    #[inline]
    pub(crate) fn fetch_rate(&self, link: LinkId) {
        prefetch(&self.rates[link.index()]);
    }

    /// Whether packets pass a link.
    ///
    /// # Panics
    /// If the fabric has no such link.
    pub fn passes(&self, link: LinkId) -> bool {
        self.passes[link.index()]
    }

    /// How many hosts there are.
    pub const fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// A host's addresses.
    ///
    /// # Panics
    /// If the fabric has no such host.
    pub fn addresses(&self, host: HostId) -> Addresses {
        self.hosts[host.index()]
    }

    /// The host of that address.
    pub fn host(&self, address: impl Into<IpAddr>) -> Option<HostId> {
        match address.into() {
            IpAddr::V4(it) => self.v4.host(it.to_bits()),
            IpAddr::V6(it) => self.v6.host(it.to_bits()),
        }
    }

    /// The host that sends a packet.
    pub(crate) fn source<P: Packet>(&self, packet: &P) -> Option<HostId> {
        P::family(self).host(packet.src())
    }

    /// The links on which a host sends, one for each of its cables.
    ///
    /// # Panics
    /// If the fabric has no such host.
    pub fn links_of_host(&self, host: HostId) -> &[LinkId] {
        let (first, end) = (self.first_of_host[host.index()], self.first_of_host[host.index() + 1]);
        &self.links_of_hosts[first as usize..end as usize]
    }

    /// What people call a link: `leaf-0 s0 → spine-0`.
    pub const fn name(&self, link: LinkId) -> LinkName<'_> {
        LinkName { fabric: self, link }
    }

    /// Takes what a router has installed now in place of what it had. Its ports and cables are those it
    /// had; their states and speeds, its groups, routes and hash may differ.
    ///
    /// # Errors
    /// What is wrong with it, or that it has other ports; the fabric stays as it was.
    pub fn replace(&mut self, router: Router) -> Result<RouterId, InstalledError> {
        build::replace(self, router)
    }

    /// Begins to fetch what [`Self::arrive`] reads.
    #[inline]
    pub(crate) fn fetch_arrival(&self, link: LinkId) {
        prefetch(&self.arrivals[link.index()]);
    }

    /// Where a packet is after a link: none if it does not arrive there.
    #[inline]
    pub(crate) fn arrive(&self, link: LinkId) -> Option<End> {
        self.arrivals[link.index()].end()
    }

    /// How `router` would choose among these members, were they all a route had; none if it cannot.
    pub(crate) fn chooser(
        &self,
        router: RouterId,
        members: &[crate::installed::Member],
    ) -> Option<Chooser> {
        let (hash, hash6) =
            (self.v4.tables[router.index()].hash, self.v6.tables[router.index()].hash);
        let member = |it: &crate::installed::Member| {
            let link = self.link_of_port(router, &it.port)?;
            Some(group::Member { link, weight: it.weight, alive: true, reachable: !it.unreachable })
        };
        let members: Option<Vec<_>> = members.iter().map(member).collect();
        let group = group::Group::new(&members?, hash.by_threshold())?;
        Some(Chooser { group, hash, hash6 })
    }

    pub(crate) const fn no_base() -> Base {
        Base::none()
    }
}

/// A group that is not installed; see [`Fabric::chooser`].
pub(crate) struct Chooser {
    group: group::Group,
    hash: hash::Hash,
    hash6: hash::Hash,
}

impl Chooser {
    pub(crate) fn link<'a>(&self, fabric: &Fabric, flow: impl Into<FlowRef<'a>>) -> LinkId {
        if !self.group.chooses() {
            return self.group.select(0);
        }
        self.group.select(match flow.into() {
            FlowRef::V4(it) => fabric.functions.value(&self.hash, it, &mut Fabric::no_base()),
            FlowRef::V6(it) => self.hash6.value6(it),
        })
    }
}

/// A link in words; see [`Fabric::name`].
#[derive(Clone, Copy, Debug)]
pub struct LinkName<'a> {
    fabric: &'a Fabric,
    link: LinkId,
}

impl fmt::Display for LinkName<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fabric, link } = *self;
        let end = |out: &mut fmt::Formatter<'_>, end| match end {
            End::Router(router) => out.write_str(&fabric.router(router).name),
            End::Host(host) => write!(out, "host {}", fabric.addresses(host)),
            End::Nothing => out.write_str("no cable"),
        };
        end(out, fabric.from(link))?;
        if let Some((_, port)) = fabric.port_of(link) {
            write!(out, " {}", port.name)?;
        }
        out.write_str(" → ")?;
        end(out, fabric.to(link))
    }
}

/// A count that the builder's limits keep below 2^32.
fn count(items: usize) -> u32 {
    u32::try_from(items).expect("the builder's limits keep counts below 2^32")
}
