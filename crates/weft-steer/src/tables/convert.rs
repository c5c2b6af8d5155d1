//! Conversion of a router's tables to `weft-route`'s types.

use std::collections::BTreeMap;

use weft_route::installed::{
    Group, GroupKind, Ipv6, Member, Port, PortState, PrefixError, Route, Router, RouterHash, Target,
};
use weft_units::BitRate;

use super::Shown;
use super::fault::AnswerFault;
use super::iproute::{Link, NextHop, NextHopObject, RouteEntry};
use crate::apply::PROTOCOL;
use crate::{RouterEntry, SteerError};

/// The assumed rate of a port without a known speed: that of veth pairs in Linux.
pub(super) const UNKNOWN_SPEED: BitRate = BitRate::gbps(10).expect("ten is not zero");

/// The states of neighbours that do not answer; nexthop objects skip them (`NUD_VALID` in `include/net/neighbour.h`
/// has all other states).
const UNREACHABLE_STATES: [&str; 3] = ["INCOMPLETE", "FAILED", "NONE"];

/// Converts a router's tables.
///
/// # Errors
/// Returns `Answer` for a route that cannot be converted.
pub(super) fn router(entry: &RouterEntry, shown: &Shown) -> Result<Router, SteerError> {
    let mut groups = Groups { shown, objects: objects(shown), groups: BTreeMap::new() };
    let mut best: BTreeMap<&str, &RouteEntry> = BTreeMap::new();
    for route in &shown.routes {
        // Among routes to a prefix the kernel uses the lowest metric, the first among equals.
        let kept = best.entry(&route.dst).or_insert(route);
        if route.metric < kept.metric {
            *kept = route;
        }
    }
    let answer =
        |reason| SteerError::Answer { router: entry.name.clone(), what: "a route", reason };
    let mut routes = Vec::new();
    for (dst, route) in best {
        let to = dst.parse().map_err(|error: PrefixError| answer(error.into()))?;
        if let Some(via) = groups.target(route).map_err(answer)? {
            let filtered = || shown.filtered.iter().any(|prefix| prefix.parse() == Ok(to));
            let steered = route.protocol == PROTOCOL.to_string() || filtered();
            routes.push(Route { to, via, steered });
        }
    }
    let [policy, fields, seed, ignore_linkdown] = shown.sysctls;
    // A kernel without IPv6 sysctls does not use IPv6.
    let ipv6 = match shown.sysctls6 {
        [None, ..] => None,
        [Some(policy), fields, ignore_linkdown] => Some(Ipv6 {
            policy: u8::try_from(policy).unwrap_or(u8::MAX),
            fields: fields.unwrap_or(0x37),
            ignore_linkdown: ignore_linkdown == Some(1),
        }),
    };
    Ok(Router {
        name: entry.name.clone(),
        ipv6,
        hash: RouterHash::Linux {
            policy: u8::try_from(policy.unwrap_or(0)).unwrap_or(u8::MAX),
            fields: fields.unwrap_or(0x37),
            seed: seed.unwrap_or(0),
        },
        ignore_linkdown: ignore_linkdown == Some(1),
        ports: shown
            .links
            .iter()
            .filter(|link| link.link_type == "ether")
            .map(|link| port(entry, shown, link))
            .collect(),
        groups: groups.groups.into_values().collect(),
        routes,
    })
}

fn port(entry: &RouterEntry, shown: &Shown, link: &Link) -> Port {
    let known = entry.ports.iter().find(|port| port.name == link.ifname);
    let reported = shown.speeds.iter().find(|(device, _)| *device == link.ifname);
    let reported =
        reported.and_then(|&(_, megabits)| BitRate::bps(megabits.saturating_mul(1_000_000)));
    let has = |flag: &str| link.flags.iter().any(|it| it == flag);
    Port {
        name: link.ifname.clone(),
        ifindex: link.ifindex,
        speed: known.and_then(|port| port.speed).or(reported).unwrap_or(UNKNOWN_SPEED),
        state: if !has("UP") {
            PortState::Down
        } else if has("NO-CARRIER") || link.operstate == "LOWERLAYERDOWN" {
            PortState::NoCarrier
        } else {
            PortState::Up
        },
        to: known.and_then(|port| port.to.clone()),
    }
}

fn objects(shown: &Shown) -> BTreeMap<u32, &NextHopObject> {
    shown.nexthops.iter().map(|object| (object.id, object)).collect()
}

/// The groups that routes use: one for each nexthop object, named by its id, and one for each other route, named by its
/// prefix.
struct Groups<'a> {
    shown: &'a Shown,
    objects: BTreeMap<u32, &'a NextHopObject>,
    groups: BTreeMap<String, Group>,
}

impl Groups<'_> {
    /// Returns the action of a route; `None` if it has no usable next hop.
    fn target(&mut self, route: &RouteEntry) -> Result<Option<Target>, AnswerFault> {
        match route.kind.as_deref() {
            None | Some("unicast") => {}
            Some("blackhole") => return Ok(Some(Target::Blackhole)),
            Some("unreachable" | "prohibit") => return Ok(Some(Target::Unreachable)),
            Some(other) => {
                let (to, kind) = (route.dst.clone(), other.to_owned());
                return Err(AnswerFault::RouteKind { to, kind });
            }
        }
        if let Some(id) = route.nhid {
            return self.object(id).map(Some);
        }
        let members: Vec<Member> = route.hops().iter().filter_map(|hop| self.member(hop)).collect();
        if members.is_empty() {
            // All its links are shut down; the kernel is about to remove it.
            return Ok(None);
        }
        let kind = if members.len() == 1 { GroupKind::Single } else { GroupKind::HashThreshold };
        let name = route.dst.clone();
        self.groups.insert(name.clone(), Group { name: name.clone(), kind, members });
        Ok(Some(Target::Group(name)))
    }

    /// Converts a next hop of a route. The kernel leaves next hops marked `dead` out of the thresholds, possibly even
    /// after their link is up again.
    fn member(&self, hop: &NextHop) -> Option<Member> {
        if hop.has("dead") {
            return None;
        }
        let port = hop.dev.clone()?;
        Some(Member { port, via: hop.neighbour(), weight: hop.weight, unreachable: false })
    }

    fn object(&mut self, id: u32) -> Result<Target, AnswerFault> {
        let name = id.to_string();
        if self.groups.contains_key(&name) {
            return Ok(Target::Group(name));
        }
        let object = *self.objects.get(&id).ok_or(AnswerFault::NoObject(id))?;
        if object.blackhole.is_some() {
            return Ok(Target::Blackhole);
        }
        let ids: Vec<(u32, u32)> = match object.group.as_slice() {
            [] => vec![(id, 1)],
            members => members.iter().map(|member| (member.id, member.weight)).collect(),
        };
        let members = ids.iter().map(|&(id, weight)| self.object_member(id, weight));
        let members = members.collect::<Result<Vec<Member>, AnswerFault>>()?;
        let kind = match (object.group.len(), object.kind.as_deref()) {
            (0, _) => GroupKind::Single,
            (_, Some("resilient")) => GroupKind::Resilient { buckets: self.buckets(id, &ids)? },
            (..) => GroupKind::HashThreshold,
        };
        self.groups.insert(name.clone(), Group { name: name.clone(), kind, members });
        Ok(Target::Group(name))
    }

    fn object_member(&self, id: u32, weight: u32) -> Result<Member, AnswerFault> {
        let hop = &self.objects.get(&id).ok_or(AnswerFault::NoMember(id))?.hop;
        let port = hop.dev.clone().ok_or(AnswerFault::NoMember(id))?;
        let silent = |neighbour: &super::iproute::Neighbour| {
            Some(neighbour.dst) == hop.neighbour()
                && neighbour.dev == port
                && neighbour.state.iter().any(|state| UNREACHABLE_STATES.contains(&state.as_str()))
        };
        let unreachable = self.shown.neighbours.iter().any(silent);
        Ok(Member { port, via: hop.neighbour(), weight, unreachable })
    }

    /// Returns the member index of each bucket.
    fn buckets(&self, group: u32, ids: &[(u32, u32)]) -> Result<Vec<u16>, AnswerFault> {
        let ours = self.shown.buckets.iter().filter(|entry| entry.id == group);
        let mut buckets: Vec<(usize, u32)> =
            ours.map(|entry| (entry.bucket.index, entry.bucket.nhid)).collect();
        buckets.sort_unstable();
        let place = |(at, (index, nhid)): (usize, (usize, u32))| {
            let member = ids.iter().position(|&(id, _)| id == nhid);
            let member = member.and_then(|place| u16::try_from(place).ok());
            let fault = AnswerFault::Bucket { bucket: index, group, object: nhid };
            member.filter(|_| at == index).ok_or(fault)
        };
        buckets.into_iter().enumerate().map(place).collect()
    }
}

#[cfg(test)]
mod tests;
