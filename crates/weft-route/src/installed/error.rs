//! The faults of an installed state.

use alloc::string::String;
use core::net::IpAddr;

use super::{Addresses, Prefix};

/// A fault of an installed state; every message names the router.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InstalledError {
    /// Two routers of one name, or two ports or groups of one router.
    #[error("{kind} {name:?} occurs twice{}", within(router))]
    Twice {
        /// `router`, `port`, `ifindex` or `group`.
        kind: &'static str,
        /// The name or number that occurs twice.
        name: String,
        /// The router; none if two routers have one name.
        router: Option<String>,
    },
    /// A name that does not exist.
    #[error("router {router:?}: {place} names {unknown}")]
    Unknown {
        /// The router.
        router: String,
        /// The place that names it.
        place: String,
        /// The unknown name, with the nearest known one.
        unknown: String,
    },
    /// A cable that leads back to its own router.
    #[error(
        "router {router:?}: the cable of port {port:?} comes back to the same router; a cable joins two routers"
    )]
    CableCycle {
        /// The router.
        router: String,
        /// One of the ports.
        port: String,
    },
    /// Two cables in one port.
    #[error(
        "router {router:?}: port {port:?} has two cables, to {first} and to {second}; correct one of the three `to`"
    )]
    TwoCables {
        /// The router.
        router: String,
        /// The port.
        port: String,
        /// One other end.
        first: String,
        /// Another.
        second: String,
    },
    /// A group without members.
    #[error(
        "router {router:?}: group {group:?} has no members; leave out the group and its routes"
    )]
    EmptyGroup {
        /// The router.
        router: String,
        /// The group.
        group: String,
    },
    /// A group that contradicts its kind.
    #[error("router {router:?}: group {group:?} {reason}")]
    Group {
        /// The router.
        router: String,
        /// The group.
        group: String,
        /// The fault.
        reason: String,
    },
    /// A hash that cannot be computed.
    #[error("router {router:?}: {reason}")]
    Hash {
        /// The router.
        router: String,
        /// The fault and its remedy.
        reason: &'static str,
    },
    /// Two routes for one prefix.
    #[error(
        "router {router:?} has two routes to {prefix}; give the one that is used, of the lowest metric"
    )]
    RouteTwice {
        /// The router.
        router: String,
        /// The prefix.
        prefix: Prefix,
    },
    /// More items than the maximum of a fabric.
    #[error("{count} {what} exceed the maximum of {max}")]
    TooMany {
        /// The kind of item.
        what: &'static str,
        /// Number of items.
        count: usize,
        /// Maximum number of items.
        max: usize,
    },
    /// A router whose ports or cables changed: the whole fabric has to be read again.
    #[error("router {router:?} has other ports or cables than before; read the whole fabric again")]
    Recabled {
        /// The router.
        router: String,
    },
    /// A host's address that a router port cannot reach: unspecified, broadcast, multicast.
    #[error(
        "router {router:?}: port {port:?} leads to host {host}, which cannot be a host's address"
    )]
    NoHost {
        /// The router.
        router: String,
        /// The port.
        port: String,
        /// The address.
        host: IpAddr,
    },
    /// An address that two hosts have.
    #[error(
        "host address {address} belongs to two hosts, {first} and {second}: give every cable of a host all its addresses"
    )]
    HostTwice {
        /// The address.
        address: IpAddr,
        /// The addresses of one host.
        first: Addresses,
        /// The addresses of the other host.
        second: Addresses,
    },
}

fn within(router: &Option<String>) -> String {
    router.as_ref().map_or_else(String::new, |name| alloc::format!(" in router {name:?}"))
}
