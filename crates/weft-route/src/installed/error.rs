//! Why installed state describes no fabric.

use alloc::string::String;
use core::net::IpAddr;

use super::{Addresses, Prefix};

/// What is wrong with installed state; every message names the router.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InstalledError {
    /// Two routers of one name, two ports or groups of one router.
    #[error("{kind} {name:?} stands twice{}", within(router))]
    Twice {
        /// `router`, `port`, `ifindex` or `group`.
        kind: &'static str,
        /// What it is called.
        name: String,
        /// The router, unless it is one itself.
        router: Option<String>,
    },
    /// A name that nothing has.
    #[error("router {router:?}: {place} names {unknown}")]
    Unknown {
        /// Where.
        router: String,
        /// What names it.
        place: String,
        /// What it names, with the nearest there is.
        unknown: String,
    },
    /// A cable that leads back to its own router.
    #[error(
        "router {router:?}: the cable of port {port:?} comes back to the same router; a cable joins two"
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
    /// A group that nothing can be sent to.
    #[error(
        "router {router:?}: group {group:?} has no members; leave out the group and its routes"
    )]
    EmptyGroup {
        /// The router.
        router: String,
        /// The group.
        group: String,
    },
    /// A group that is not what its kind says.
    #[error("router {router:?}: group {group:?} {reason}")]
    Group {
        /// The router.
        router: String,
        /// The group.
        group: String,
        /// What is wrong.
        reason: String,
    },
    /// A hash that nobody can compute.
    #[error("router {router:?}: {reason}")]
    Hash {
        /// The router.
        router: String,
        /// What is wrong and what to do.
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
    /// More than a fabric in Weft's range has.
    #[error("{count} {what} are more than the {most} that are followed")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// A router that came back with other ports or cables: the whole fabric is to be read again.
    #[error("router {router:?} has other ports or cables than before; read the whole fabric again")]
    Recabled {
        /// The router.
        router: String,
    },
    /// A host's address that a router port cannot reach: unspecified, broadcast, multicast.
    #[error("router {router:?}: port {port:?} leads to host {host}, which is no host's address")]
    NoHost {
        /// The router.
        router: String,
        /// The port.
        port: String,
        /// The address.
        host: IpAddr,
    },
    /// Two hosts with one address that are not one host.
    #[error(
        "host address {address} is of two hosts, {first} and {second}: give every cable of a host all its addresses"
    )]
    HostTwice {
        /// The address.
        address: IpAddr,
        /// Addresses of one host.
        first: Addresses,
        /// Of the other.
        second: Addresses,
    },
}

fn within(router: &Option<String>) -> String {
    router.as_ref().map_or_else(String::new, |name| alloc::format!(" in router {name:?}"))
}
