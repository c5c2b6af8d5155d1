//! A flow's path with everything that determined it, for display.

use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;

use super::address::Address;
use super::family::Packet;
use super::{End, Fabric, LinkId, RouterId};
use crate::flow::FlowRef;
use crate::installed::{GroupKind, Prefix, Target};
use crate::path::{Path, Start};

/// A path and the decisions that lead to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Each router's decision, in order.
    pub hops: Vec<Hop>,
    /// The end of the path, in words.
    pub outcome: String,
    /// `true` if the flow arrives.
    pub arrives: bool,
}

/// The decision of one router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// The router.
    pub router: String,
    /// The longest prefix of a route with a live next hop; none without a route.
    pub prefix: Option<Prefix>,
    /// The route's group, or `no route`, `unreachable` or `blackhole`.
    pub group: String,
    /// `single`, `hash-threshold` or `resilient`; empty without a group.
    pub kind: &'static str,
    /// The hash that selects the member; none if the group has one member.
    pub hash: Option<u32>,
    /// The group's live members, in the order installed.
    pub members: Vec<Share>,
    /// The link that the flow takes, as displayed by [`Fabric::name`]; empty if it takes none.
    pub takes: String,
}

/// A member's share of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// The port.
    pub port: String,
    /// The node at the port's other end.
    pub to: String,
    /// The member's share of all hashes, in millionths.
    pub per_million: u32,
    /// `true` if the flow takes this member.
    pub taken: bool,
}

impl Fabric {
    /// Returns the flow's path and the decision of every router on it, with its inputs.
    ///
    /// # Panics
    /// If the fabric has no such link or router.
    pub fn explain<'a>(&self, start: Start, flow: impl Into<FlowRef<'a>>) -> (Path, Explanation) {
        match flow.into() {
            FlowRef::V4(tuple) => self.explain_packet(start, tuple),
            FlowRef::V6(tuple) => self.explain_packet(start, tuple),
        }
    }

    fn explain_packet<P: Packet>(&self, start: Start, packet: &P) -> (Path, Explanation)
    where
        for<'a> &'a P: Into<FlowRef<'a>>,
    {
        let path = self.path_from(start, packet);
        let first = match start {
            Start::Router(router) => Some(router),
            Start::Link(_) => None,
        };
        let chosen =
            if first.is_some() { path.links() } else { path.links().get(1..).unwrap_or(&[]) };
        let crossed = path.links().iter().filter_map(|&link| match self.to(link) {
            End::Router(router) if self.passes(link) => Some(router),
            _ => None,
        });
        let chosen = chosen.iter().copied().map(Some).chain(core::iter::once(None));
        let hops = first.into_iter().chain(crossed).zip(chosen);
        let hops = hops.map(|(router, takes)| self.hop(router, takes, packet)).collect();
        let outcome = alloc::format!("{}", self.outcome(path.outcome));
        (path, Explanation { hops, outcome, arrives: path.arrives() })
    }

    fn hop<P: Packet>(&self, number: RouterId, takes: Option<LinkId>, packet: &P) -> Hop {
        let router = self.router(number);
        let (table, entry) = P::family(self).entry(number, packet.dst());
        let group = table.groups.get(entry as usize).and_then(Option::as_ref);
        // The table does not keep prefixes: the prefix is the longest among the routes with this entry.
        let leads = |via: &Target| match via {
            Target::Group(name) => {
                router.groups.get(entry as usize).is_some_and(|group| group.name == *name)
            }
            Target::Unreachable => entry == super::table::UNREACHABLE,
            Target::Blackhole => entry == super::table::BLACKHOLE,
        };
        let routes = router.routes.iter();
        let matching =
            routes.filter(|route| route.to.contains(packet.dst().ip()) && leads(&route.via));
        let prefix = matching.map(|route| route.to).max_by_key(|prefix| prefix.len());
        let kind = group.and_then(|_| router.groups.get(entry as usize)).map(|group| &group.kind);
        let share = |(link, per_million)| Share {
            port: self.port_of(link).map_or_else(String::new, |(_, port)| port.name.clone()),
            to: self.end_name(self.to(link)),
            per_million,
            taken: takes == Some(link),
        };
        Hop {
            router: router.name.clone(),
            prefix,
            group: match entry {
                super::table::NO_ROUTE => String::from("no route"),
                super::table::UNREACHABLE => String::from("unreachable"),
                super::table::BLACKHOLE => String::from("blackhole"),
                group => router.groups[group as usize].name.clone(),
            },
            kind: kind.map_or("", GroupKind::name),
            hash: group
                .filter(|group| group.chooses())
                .map(|_| packet.value(&self.functions, &table.hash, &mut Self::no_base())),
            members: group
                .map_or_else(Vec::new, |group| group.shares().into_iter().map(share).collect()),
            takes: takes.map_or_else(String::new, |link| alloc::format!("{}", self.name(link))),
        }
    }

    fn end_name(&self, end: End) -> String {
        match end {
            End::Router(router) => self.router(router).name.clone(),
            End::Host(host) => alloc::format!("{}", self.addresses(host)),
            End::Nothing => String::from("no cable"),
        }
    }
}
