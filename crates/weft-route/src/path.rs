//! The path of a flow through a fabric, hop by hop, by its routers' forwarding tables.

use core::fmt;

use crate::fabric::{End, Fabric, Forward, HostId, LinkId, Packet, RouterId};
use crate::flow::FlowRef;

/// Maximum number of links of a path: a packet that has crossed this many is in a loop. The deepest fabric (four tiers
/// of switches) needs nine.
pub const MAX_PATH_LINKS: usize = 24;

/// The path of a flow.
#[derive(Clone, Copy)]
pub struct Path {
    links: [LinkId; MAX_PATH_LINKS],
    len: u8,
    /// The end of the path.
    pub outcome: Outcome,
}

/// The place where a path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// On a link, which is the first of the path.
    Link(LinkId),
    /// In a router, before it has chosen a next hop.
    Router(RouterId),
}

/// The end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The flow arrives at the host with the destination's address.
    Delivered(HostId),
    /// The flow arrives at another host.
    Astray(HostId),
    /// No host has the source address, or the host has several cables and the one it sends on is not known.
    UnknownSource,
    /// The router has no route.
    NoRoute(RouterId),
    /// The router's route for the destination is of type `unreachable`.
    Unreachable(RouterId),
    /// The router's route for the destination is of type `blackhole`.
    Blackhole(RouterId),
    /// The router chooses a link that is down.
    Down(LinkId),
    /// The port has no cable.
    Uncabled(LinkId),
    /// The flow is in a loop; this is a router of the loop.
    Loop(RouterId),
}

impl Path {
    pub(crate) const EMPTY: Self =
        Self { links: [LinkId(0); MAX_PATH_LINKS], len: 0, outcome: Outcome::UnknownSource };

    /// Returns the links in order, the host's first. If the path breaks off, the last link is the one that could not be
    /// crossed.
    pub fn links(&self) -> &[LinkId] {
        &self.links[..usize::from(self.len)]
    }

    /// Returns `true` if the flow arrives at its destination.
    pub const fn arrives(&self) -> bool {
        matches!(self.outcome, Outcome::Delivered(_))
    }

    pub(crate) fn push(&mut self, link: LinkId) -> bool {
        let Some(place) = self.links.get_mut(usize::from(self.len)) else { return false };
        *place = link;
        self.len += 1;
        true
    }
}

impl PartialEq for Path {
    fn eq(&self, other: &Self) -> bool {
        self.links() == other.links() && self.outcome == other.outcome
    }
}

impl Eq for Path {}

impl fmt::Debug for Path {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Path")
            .field("links", &self.links())
            .field("outcome", &self.outcome)
            .finish()
    }
}

impl Fabric {
    /// Returns the flow's path from the host that has its source address. A host with several cables chooses among them
    /// itself: use [`Self::path_from`] for it.
    pub fn path<'a>(&self, flow: impl Into<FlowRef<'a>>) -> Path {
        let flow = flow.into();
        match self.links_of_source(flow) {
            &[only] => self.path_from(Start::Link(only), flow),
            _ => Path::EMPTY,
        }
    }

    /// Returns the links on which the flow's source sends; none if the fabric does not have that host.
    fn links_of_source(&self, flow: FlowRef<'_>) -> &[LinkId] {
        let host = match flow {
            FlowRef::V4(tuple) => self.source(tuple),
            FlowRef::V6(tuple) => self.source(tuple),
        };
        host.map_or(&[], |host| self.links_of_host(host))
    }

    /// Returns the flow's path from a host's link on, or from a router on.
    ///
    /// # Panics
    /// If the fabric has no such link or router.
    #[inline]
    pub fn path_from<'a>(&self, start: Start, flow: impl Into<FlowRef<'a>>) -> Path {
        match flow.into() {
            FlowRef::V4(tuple) => self.follow(start, tuple),
            FlowRef::V6(tuple) => self.follow(start, tuple),
        }
    }

    fn follow<P: Packet>(&self, start: Start, packet: &P) -> Path {
        let mut path = Path::EMPTY;
        let mut base = Self::no_base();
        let mut at = match start {
            Start::Router(router) => router,
            Start::Link(link) => {
                path.push(link);
                match self.cross(link, packet) {
                    Ok(router) => router,
                    Err(outcome) => return Path { outcome, ..path },
                }
            }
        };
        path.outcome = loop {
            let link = match packet.forward(self, at, &mut base) {
                Forward::Link(link) => link,
                Forward::NoRoute => break Outcome::NoRoute(at),
                Forward::Unreachable => break Outcome::Unreachable(at),
                Forward::Blackhole => break Outcome::Blackhole(at),
            };
            if !path.push(link) {
                break Outcome::Loop(at);
            }
            at = match self.cross(link, packet) {
                Ok(router) => router,
                Err(outcome) => break outcome,
            };
        };
        path
    }

    /// Returns the flow's path from its source if it crosses all links of `through`. For a host with several cables it
    /// returns the first such path.
    pub fn path_over<'a>(&self, flow: impl Into<FlowRef<'a>>, through: &[LinkId]) -> Option<Path> {
        let flow = flow.into();
        let links = self.links_of_source(flow);
        let mut paths = links.iter().map(|&first| self.path_from(Start::Link(first), flow));
        paths.find(|path| through.iter().all(|link| path.links().contains(link)))
    }

    /// Returns the router at the end of a link.
    ///
    /// # Errors
    /// Returns the outcome of a path that ends there.
    #[inline]
    pub(crate) fn cross(&self, link: LinkId, packet: &impl Packet) -> Result<RouterId, Outcome> {
        match self.arrive(link) {
            Some(End::Router(router)) => Ok(router),
            Some(End::Host(host)) if packet.is_for(self, host) => Err(Outcome::Delivered(host)),
            Some(End::Host(host)) => Err(Outcome::Astray(host)),
            _ if self.to(link) == End::Nothing => Err(Outcome::Uncabled(link)),
            _ => Err(Outcome::Down(link)),
        }
    }

    /// Returns an outcome in words, for display.
    pub const fn outcome(&self, outcome: Outcome) -> OutcomeName<'_> {
        OutcomeName { fabric: self, outcome }
    }
}

/// An outcome in words; see [`Fabric::outcome`].
#[derive(Clone, Copy, Debug)]
pub struct OutcomeName<'a> {
    fabric: &'a Fabric,
    outcome: Outcome,
}

impl fmt::Display for OutcomeName<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fabric, outcome } = *self;
        let router = |router| &fabric.router(router).name;
        let host = |host| fabric.addresses(host);
        match outcome {
            Outcome::Delivered(at) => write!(out, "arrives at {}", host(at)),
            Outcome::Astray(at) => write!(out, "ends at {}, which is another host", host(at)),
            Outcome::UnknownSource => {
                out.write_str("the source is no host of the fabric, or has several cables")
            }
            Outcome::NoRoute(at) => write!(out, "{} has no route for it", router(at)),
            Outcome::Unreachable(at) => {
                write!(out, "{} has an unreachable route for it", router(at))
            }
            Outcome::Blackhole(at) => write!(out, "{} drops it by a blackhole route", router(at)),
            Outcome::Down(link) => write!(out, "{} is down", fabric.name(link)),
            Outcome::Uncabled(link) => write!(out, "{}", fabric.name(link)),
            Outcome::Loop(at) => write!(out, "loops through {}", router(at)),
        }
    }
}
