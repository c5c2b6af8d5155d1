//! A fabric's forwarding state in numbers: the contents of [`Installed`], checked and laid out for path lookups of
//! millions of flows.
//!
//! A *link* is one direction of a cable. A router's port has the link on which it sends; a host has one for each of
//! its cables, on which it sends. So every path is a list of [`LinkId`]s.

mod action;
mod address;
mod arrival;
mod build;
mod explain;
mod family;
mod group;
mod hash;
mod order;
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
pub use order::RingOrder;
use serde::{Deserialize, Serialize};
pub(crate) use table::Forward;
use weft_units::{BitRate, prefetch};

use crate::flow::FlowRef;
use crate::installed::{Addresses, Installed, InstalledError, Port, Router};

/// A router by its place in [`Installed::routers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouterId(pub u32);

/// A host's index in the order of IPv4 addresses; hosts without one come last, in the order of IPv6 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// One direction of a cable: the links of ports router by router, then the links of hosts.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct LinkId(pub u32);

macro_rules! index {
    ($($id:ty),+) => {$(
        impl $id {
            /// Returns the index into an array with one entry per item.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    )+};
}
index!(RouterId, HostId, LinkId);

/// The node at an end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A router.
    Router(RouterId),
    /// A host.
    Host(HostId),
    /// No cable.
    Nothing,
}

/// A fabric, prepared for many path lookups.
#[derive(Clone, Debug)]
pub struct Fabric {
    installed: Installed,
    names: BTreeMap<String, RouterId>,
    /// By router, the link of its first port; the last entry is the number of ports.
    first_link: Vec<u32>,
    /// By router, the indices of its ports in the order of their names; one entry per port.
    by_name: Vec<u32>,
    /// By link, its sender.
    from: Vec<End>,
    /// By link, its receiver.
    to: Vec<End>,
    /// By link, the link of the other direction.
    reverse: Vec<Option<LinkId>>,
    /// By link, its rate in bits per second.
    rates: Vec<u64>,
    /// By link, `true` if both of its ends are up.
    passes: Vec<bool>,
    /// By host, its addresses.
    hosts: Vec<Addresses>,
    /// By host, the index of its first link in `links_of_hosts`; the last entry is the number of these links.
    first_of_host: Vec<u32>,
    links_of_hosts: Vec<LinkId>,
    /// By link, its end in one word.
    arrivals: Vec<Arrival>,
    v4: Family<u32>,
    v6: Family<u128>,
    functions: Functions,
}

impl Fabric {
    /// Returns every router with its installed state.
    pub const fn installed(&self) -> &Installed {
        &self.installed
    }

    /// Returns every router, by number.
    pub fn router_ids(&self) -> impl Iterator<Item = RouterId> + use<> {
        (0..count(self.installed.routers.len())).map(RouterId)
    }

    /// Returns the installed state of a router.
    ///
    /// # Panics
    /// If the fabric has no such router.
    pub fn router(&self, router: RouterId) -> &Router {
        &self.installed.routers[router.index()]
    }

    /// Returns the router of that name.
    pub fn find(&self, name: &str) -> Option<RouterId> {
        self.names.get(name).copied()
    }

    /// Returns every link.
    pub fn link_ids(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..count(self.to.len())).map(LinkId)
    }

    /// Returns the number of links.
    pub const fn links(&self) -> usize {
        self.to.len()
    }

    /// Returns the links on which a router sends, one for each port in order.
    ///
    /// # Panics
    /// If the fabric has no such router.
    pub fn links_of(&self, router: RouterId) -> impl Iterator<Item = LinkId> + use<> {
        (self.first_link[router.index()]..self.first_link[router.index() + 1]).map(LinkId)
    }

    /// Returns the link on which the router's port with that interface index sends.
    pub fn link_of_ifindex(&self, router: RouterId, ifindex: u32) -> Option<LinkId> {
        let ports = &self.installed.routers.get(router.index())?.ports;
        let place = ports.iter().position(|port| port.ifindex == ifindex)?;
        Some(LinkId(self.first_link[router.index()] + count(place)))
    }

    /// Returns the link on which the router's port of that name sends.
    pub fn link_of_port(&self, router: RouterId, name: &str) -> Option<LinkId> {
        let ports = &self.installed.routers.get(router.index())?.ports;
        let first = self.first_link[router.index()];
        let by_name = &self.by_name[first as usize..][..ports.len()];
        let found =
            by_name.binary_search_by(|&place| ports[place as usize].name.as_str().cmp(name));
        found.ok().map(|at| LinkId(first + by_name[at]))
    }

    /// Returns the port that sends on a link; `None` if a host sends on it.
    ///
    /// # Panics
    /// If the fabric has no such link.
    pub fn port_of(&self, link: LinkId) -> Option<(RouterId, &Port)> {
        let End::Router(router) = self.from[link.index()] else { return None };
        let place = link.0 - self.first_link[router.index()];
        Some((router, &self.installed.routers[router.index()].ports[place as usize]))
    }

    /// Returns the sender on a link.
    ///
    /// # Panics
    /// If the fabric has no such link.
    pub fn from(&self, link: LinkId) -> End {
        self.from[link.index()]
    }

    /// Returns the receiver from a link.
    ///
    /// # Panics
    /// If the fabric has no such link.
    pub fn to(&self, link: LinkId) -> End {
        self.to[link.index()]
    }

    /// Returns the other direction of the cable; `None` without a cable.
    ///
    /// # Panics
    /// If the fabric has no such link.
    pub fn reverse(&self, link: LinkId) -> Option<LinkId> {
        self.reverse[link.index()]
    }

    /// Returns the capacity of a link.
    ///
    /// # Panics
    /// If the fabric has no such link.
    pub fn rate(&self, link: LinkId) -> BitRate {
        BitRate::bps(self.rates[link.index()]).expect("rates come from rates, which are not zero")
    }

    /// Prefetches the memory that [`Self::rate`] reads.
    #[inline]
    pub(crate) fn prefetch_rate(&self, link: LinkId) {
        prefetch(&self.rates[link.index()]);
    }

    /// Returns `true` if a link passes packets.
    ///
    /// # Panics
    /// If the fabric has no such link.
    pub fn passes(&self, link: LinkId) -> bool {
        self.passes[link.index()]
    }

    /// Returns the number of hosts.
    pub const fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Returns a host's addresses.
    ///
    /// # Panics
    /// If the fabric has no such host.
    pub fn addresses(&self, host: HostId) -> Addresses {
        self.hosts[host.index()]
    }

    /// Returns the host of that address.
    pub fn host(&self, address: impl Into<IpAddr>) -> Option<HostId> {
        match address.into() {
            IpAddr::V4(it) => self.v4.host(it.to_bits()),
            IpAddr::V6(it) => self.v6.host(it.to_bits()),
        }
    }

    /// Returns the host that sends a packet.
    pub(crate) fn source<P: Packet>(&self, packet: &P) -> Option<HostId> {
        P::family(self).host(packet.src())
    }

    /// Returns the links on which a host sends, one for each of its cables.
    ///
    /// # Panics
    /// If the fabric has no such host.
    pub fn links_of_host(&self, host: HostId) -> &[LinkId] {
        let (first, end) = (self.first_of_host[host.index()], self.first_of_host[host.index() + 1]);
        &self.links_of_hosts[first as usize..end as usize]
    }

    /// Returns a link's name for display: `leaf-0 s0 → spine-0`. Displaying it panics if the fabric has no such link.
    pub const fn name(&self, link: LinkId) -> LinkName<'_> {
        LinkName { fabric: self, link }
    }

    /// Replaces the installed state of a router. Its ports and cables must be the same as before; their states and
    /// speeds, its groups, routes and hash may differ.
    ///
    /// # Errors
    /// Returns the first fault found, or [`InstalledError::Recabled`] if ports differ; the fabric stays as it was.
    pub fn replace(&mut self, router: Router) -> Result<RouterId, InstalledError> {
        build::replace(self, router)
    }

    /// Prefetches the memory that [`Self::arrive`] reads.
    #[inline]
    pub(crate) fn prefetch_arrival(&self, link: LinkId) {
        prefetch(&self.arrivals[link.index()]);
    }

    /// Returns the node that a packet reaches over a link; `None` if it does not pass.
    #[inline]
    pub(crate) fn arrive(&self, link: LinkId) -> Option<End> {
        self.arrivals[link.index()].end()
    }

    /// Returns how `router` selects in a group of these members; `None` if a port is unknown or no member is alive.
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

/// A link's name for display; see [`Fabric::name`].
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

/// Converts a count, which the builder's limits keep below 2^32.
fn count(items: usize) -> u32 {
    u32::try_from(items).expect("the builder's limits keep counts below 2^32")
}
