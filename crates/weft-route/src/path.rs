//! The way of a flow through a fabric, hop by hop, as its routers forward it.

use core::fmt;

use crate::fabric::{End, Fabric, Forward, HostId, LinkId, Packet, RouterId};
use crate::flow::FlowRef;

/// Links a path has at most: a packet that has crossed so many goes in circles. The deepest fabric
/// (four tiers of switches) needs nine.
pub const LONGEST: usize = 24;

/// Where a flow goes.
#[derive(Clone, Copy)]
pub struct Path {
    links: [LinkId; LONGEST],
    len: u8,
    /// How it ends.
    pub outcome: Outcome,
}

/// Where following a flow begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// On a link, which is the first of the path.
    Link(LinkId),
    /// In a router, before it has chosen.
    Router(RouterId),
}

/// How a path ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// At the host with the destination's address.
    Delivered(HostId),
    /// At another host.
    Astray(HostId),
    /// Nobody has the source address, or by which of several cables the host sends is not known.
    UnknownSource,
    /// The router has no route.
    NoRoute(RouterId),
    /// The router's route is to say that there is none.
    Unreachable(RouterId),
    /// The router's route is to drop it.
    Blackhole(RouterId),
    /// The link is chosen though it is down.
    Down(LinkId),
    /// The port has no cable.
    Uncabled(LinkId),
    /// It goes in circles; it comes through this router again and again.
    Loop(RouterId),
}

impl Path {
    pub(crate) const EMPTY: Self =
        Self { links: [LinkId(0); LONGEST], len: 0, outcome: Outcome::UnknownSource };

    /// The links, in order, the host's first. Where the path breaks off, the last is the one that could
    /// not be crossed.
    pub fn links(&self) -> &[LinkId] {
        &self.links[..usize::from(self.len)]
    }

    /// Whether it arrives.
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
    /// The flow's path from the host that has its source address. A host with several cables sends
    /// on one of them that only it knows: then use [`Self::path_from`].
    pub fn path<'a>(&self, flow: impl Into<FlowRef<'a>>) -> Path {
        let flow = flow.into();
        match self.links_of_source(flow) {
            &[only] => self.path_from(Start::Link(only), flow),
            _ => Path::EMPTY,
        }
    }

    /// The links on which the flow's source sends; none where the fabric does not have it.
    fn links_of_source(&self, flow: FlowRef<'_>) -> &[LinkId] {
        let host = match flow {
            FlowRef::V4(tuple) => self.source(tuple),
            FlowRef::V6(tuple) => self.source(tuple),
        };
        host.map_or(&[], |host| self.links_of_host(host))
    }

    /// The flow's path from a host's link on, or from a router on.
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

    /// The flow's path from its source on, where that is one that crosses these links. Of a host with several
    /// cables the first that leads there is taken.
    pub fn path_over<'a>(&self, flow: impl Into<FlowRef<'a>>, through: &[LinkId]) -> Option<Path> {
        let flow = flow.into();
        let links = self.links_of_source(flow);
        let mut paths = links.iter().map(|&first| self.path_from(Start::Link(first), flow));
        paths.find(|path| through.iter().all(|link| path.links().contains(link)))
    }

    /// The router at the end of a link, or how the path ends there.
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

    /// How a path ends, in words.
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
                out.write_str("the source is no host of the fabric, or one with several cables")
            }
            Outcome::NoRoute(at) => write!(out, "{} has no route for it", router(at)),
            Outcome::Unreachable(at) => write!(out, "{} has it unreachable", router(at)),
            Outcome::Blackhole(at) => write!(out, "{} drops it by its route", router(at)),
            Outcome::Down(link) => write!(out, "{} is down", fabric.name(link)),
            Outcome::Uncabled(link) => write!(out, "{}", fabric.name(link)),
            Outcome::Loop(at) => write!(out, "goes in circles through {}", router(at)),
        }
    }
}
