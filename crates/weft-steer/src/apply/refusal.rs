//! The reasons that a router's tables do not permit a change.

use std::net::IpAddr;

use weft_route::Prefix;

/// The reason why a change of a router's next hops is refused, with the remedy where there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A router that is not in the inventory; the text has the nearest name.
    #[error("{0}")]
    UnknownRouter(String),
    /// A dry run, which carries out nothing.
    #[error("dry run, would run: {}", .0.join("; "))]
    DryRun(Vec<String>),
    /// A router whose FRR runs no BGP.
    #[error("FRR runs no BGP: use apply = \"kernel\"")]
    NoBgp,
    /// A destination that the router's own routing does not have.
    #[error("no route to {0}")]
    NoRoute(IpAddr),
    /// A port by which there is no route.
    #[error("no route to {to} by {port}, only by {}", there.join(", "))]
    NoRouteBy {
        /// The destination.
        to: Prefix,
        /// The port.
        port: String,
        /// The ports by which there is one.
        there: Vec<String>,
    },
    /// A change that leaves no next hop.
    #[error("{0} would have no next hop")]
    NoNextHop(Prefix),
    /// A neighbour with a route-map of the operator's.
    #[error("{device} has a route-map of the operator's: {line}")]
    RouteMap {
        /// The neighbour's interface.
        device: String,
        /// The line of the configuration.
        line: String,
    },
    /// A route of another protocol that the controller's route would replace.
    #[error(
        "{to} has a route of protocol {protocol} with metric {metric}, which the controller's would replace: give it a higher metric"
    )]
    WouldReplace {
        /// The destination.
        to: Prefix,
        /// The protocol.
        protocol: String,
        /// The metric.
        metric: u32,
    },
    /// A route of the router's own to the same address.
    #[error(
        "{0} has a route of its own, which the controller's would replace: only a destination of a shorter prefix can be moved"
    )]
    HostRoute(Prefix),
    /// An interface whose name a shell would read otherwise.
    #[error("{device:?} is not a safe word in a shell: rename the interface")]
    Unsafe {
        /// The interface.
        device: String,
    },
    /// Tables that still have the controller's route.
    #[error("{0} is still steered")]
    StillSteered(Prefix),
    /// Tables without the route.
    #[error("there is no route to {0}")]
    Missing(Prefix),
    /// Tables that drop the destination's packets.
    #[error("{0} is dropped")]
    Dropped(Prefix),
    /// Tables with other next hops than those wanted.
    #[error("{to} goes by {}, not by {}", found.join(", "), wanted.join(", "))]
    Otherwise {
        /// The destination.
        to: Prefix,
        /// The ports in the tables.
        found: Vec<String>,
        /// The wanted ports.
        wanted: Vec<String>,
    },
}
