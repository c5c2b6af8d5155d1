//! Conversion of one router's groups and routes from names to numbers.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use weft_units::unknown_name;

use super::LinkId;
use super::address::Address;
use super::group::{Group, Member};
use super::hash::Functions;
use super::table::{BLACKHOLE, Lookup, Table, UNREACHABLE};
use crate::installed::{GroupKind, InstalledError, PortState, Prefix, Router, RouterHash, Target};

/// Maximum number of members of a group, and of buckets of a resilient group: Linux counts both in 16 bits.
const MAX_MEMBERS: usize = 1 << 16;

/// The routing tables of one router, of both families.
pub(super) struct Tables {
    pub(super) v4: (Table, Lookup<u32>),
    pub(super) v6: (Table, Lookup<u128>),
}

/// Converts the routes of one router, whose first port has the link `first`.
pub(super) fn tables(
    functions: &mut Functions,
    first: u32,
    router: &Router,
) -> Result<Tables, InstalledError> {
    let ports = numbered("port", router, router.ports.iter().map(|port| &port.name))?;
    let groups_by_name = numbered("group", router, router.groups.iter().map(|group| &group.name))?;
    let mut ifindices: Vec<u32> = router.ports.iter().map(|port| port.ifindex).collect();
    ifindices.sort_unstable();
    if let Some(pair) = ifindices.windows(2).find(|pair| pair[0] == pair[1]) {
        let (name, router) = (format!("{}", pair[0]), Some(router.name.clone()));
        return Err(InstalledError::Twice { kind: "ifindex", name, router });
    }
    let mut routes = Vec::with_capacity(router.routes.len());
    for route in &router.routes {
        let entry = match &route.via {
            Target::Unreachable => UNREACHABLE,
            Target::Blackhole => BLACKHOLE,
            Target::Group(name) => *groups_by_name.get(name.as_str()).ok_or_else(|| {
                let known = router.groups.iter().map(|group| &group.name);
                let unknown = nearest("group", name, known);
                let place = format!("the route to {}", route.to);
                InstalledError::Unknown { router: router.name.clone(), place, unknown }
            })?,
        };
        routes.push((route.to, entry));
    }
    let mut prefixes: Vec<_> = routes.iter().map(|&(prefix, _)| prefix).collect();
    prefixes.sort_unstable();
    if let Some(pair) = prefixes.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(InstalledError::RouteTwice { router: router.name.clone(), prefix: pair[0] });
    }
    let ignore_linkdown6 = router.ipv6.map_or(router.ignore_linkdown, |it| it.ignore_linkdown);
    let v4 = Selection { hash: router.hash, ignore_linkdown: router.ignore_linkdown };
    let v6 = Selection { hash: router.hash6(), ignore_linkdown: ignore_linkdown6 };
    let numbered = Numbered { router, first, ports: &ports };
    let is_v6 = prefixes.last().is_some_and(|prefix| prefix.first().is_ipv6());
    Ok(Tables {
        v4: table(functions, numbered, v4, &routes)?,
        v6: table(functions, numbered, v6, if is_v6 { &routes } else { &[] })?,
    })
}

/// A router with the numbers of its ports and links.
#[derive(Clone, Copy)]
struct Numbered<'a> {
    router: &'a Router,
    /// The link of the router's first port.
    first: u32,
    ports: &'a BTreeMap<&'a str, u32>,
}

/// A family's settings for the selection of a next hop.
#[derive(Clone, Copy)]
struct Selection {
    hash: RouterHash,
    /// `true` if next hops of ports without carrier are skipped.
    ignore_linkdown: bool,
}

/// Converts the routes of one family, with groups by that family's hash and link-state settings.
fn table<A: Address>(
    functions: &mut Functions,
    numbered: Numbered<'_>,
    selection: Selection,
    routes: &[(Prefix, u32)],
) -> Result<(Table, Lookup<A>), InstalledError> {
    let Numbered { router, first, .. } = numbered;
    let hash = functions
        .add(&selection.hash)
        .map_err(|reason| InstalledError::Hash { router: router.name.clone(), reason })?;
    // Most fabrics use one family. Groups without a route are still checked, once.
    let used = if A::of(Ipv4Addr::UNSPECIFIED.into()).is_some() || !routes.is_empty() {
        &router.groups[..]
    } else {
        &[]
    };
    let mut groups = Vec::with_capacity(used.len());
    for group in used {
        let members = members(numbered, group, selection.ignore_linkdown)?;
        groups.push(match &group.kind {
            GroupKind::Resilient { buckets } => Group::resilient(&members, buckets),
            GroupKind::Single | GroupKind::HashThreshold => {
                Group::new(&members, hash.by_threshold())
            }
        });
    }
    Ok(Table::new(hash, groups, routes, LinkId(first)))
}

/// Returns a group's members after checking them against its kind.
fn members(
    numbered: Numbered<'_>,
    group: &crate::installed::Group,
    ignore_linkdown: bool,
) -> Result<Vec<Member>, InstalledError> {
    let Numbered { router, first, ports } = numbered;
    let wrong = |reason| InstalledError::Group {
        router: router.name.clone(),
        group: group.name.clone(),
        reason,
    };
    let members = &group.members;
    if members.is_empty() {
        let (router, group) = (router.name.clone(), group.name.clone());
        return Err(InstalledError::EmptyGroup { router, group });
    }
    within("members of a group", members.len(), MAX_MEMBERS)?;
    match &group.kind {
        GroupKind::Single if members.len() > 1 => {
            let reason = format!(
                "is single but has {} members; its kind may be hash-threshold",
                members.len()
            );
            return Err(wrong(reason));
        }
        GroupKind::Resilient { buckets } => {
            within("buckets of a group", buckets.len(), MAX_MEMBERS)?;
            if buckets.is_empty() {
                return Err(wrong(
                    "is resilient but has no buckets; read `ip nexthop bucket list`".to_owned(),
                ));
            }
            if let Some(bucket) =
                buckets.iter().find(|bucket| usize::from(**bucket) >= members.len())
            {
                return Err(wrong(format!(
                    "has a bucket for member {bucket}, but only {} members, counted from 0",
                    members.len()
                )));
            }
        }
        GroupKind::Single | GroupKind::HashThreshold => {}
    }
    if members.iter().all(|member| member.weight == 0) {
        return Err(wrong("has only weights of zero; at least one must be positive".to_owned()));
    }
    if members.len() > 1 && matches!(router.hash, RouterHash::Linux { seed: 0, .. }) {
        let reason = "hash seed 0 stands for a secret of the kernel, so paths cannot be predicted; set fib_multipath_hash_seed";
        return Err(InstalledError::Hash { router: router.name.clone(), reason });
    }
    members
        .iter()
        .map(|member| {
            let place = *ports.get(member.port.as_str()).ok_or_else(|| {
                let known = router.ports.iter().map(|port| &port.name);
                let unknown = nearest("port", &member.port, known);
                let place = format!("group {:?}", group.name);
                InstalledError::Unknown { router: router.name.clone(), place, unknown }
            })?;
            let alive = match router.ports[place as usize].state {
                PortState::Up => true,
                PortState::NoCarrier => !ignore_linkdown,
                PortState::Down => false,
            };
            let link = LinkId(first + place);
            Ok(Member { link, weight: member.weight, alive, reachable: !member.unreachable })
        })
        .collect()
}

fn numbered<'a>(
    kind: &'static str,
    router: &Router,
    names: impl Iterator<Item = &'a String>,
) -> Result<BTreeMap<&'a str, u32>, InstalledError> {
    let mut numbers = BTreeMap::new();
    for (name, number) in names.zip(0..) {
        if numbers.insert(name.as_str(), number).is_some() {
            let (name, router) = (name.clone(), Some(router.name.clone()));
            return Err(InstalledError::Twice { kind, name, router });
        }
    }
    Ok(numbers)
}

pub(super) fn nearest<'a>(
    kind: &str,
    name: &str,
    known: impl Iterator<Item = &'a String>,
) -> String {
    // A fabric has thousands of routers, so the message names the nearest router, not all of them.
    let known: Vec<&str> = known.map(String::as_str).collect();
    if known.len() <= 8 {
        return unknown_name(kind, name, &known);
    }
    let hint = weft_units::suggest(name, known.iter().copied());
    let hint = hint.map_or_else(String::new, |hint| format!(", did you mean {hint:?}?"));
    format!("{kind} {name:?}, which does not exist{hint}")
}

pub(super) fn within(what: &'static str, count: usize, max: usize) -> Result<(), InstalledError> {
    if count > max { Err(InstalledError::TooMany { what, count, max }) } else { Ok(()) }
}
