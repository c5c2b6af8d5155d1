//! A router's ports and routes: OpenConfig's interfaces, its abstract forwarding tables (AFT), and static routes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weft_route::Prefix;
use weft_route::installed::{
    Group, GroupKind, Member, Port, PortState, PrefixError, Route, Router, RouterHash, Target,
};
use weft_units::BitRate;

use super::client::Client;
use super::proto::gnmi::Path;
use super::static_route::{self, is_ours};
use super::tree::{Tree, without_module};
use super::{GnmiError, GnmiSettings, RouteSource, Tables};
use crate::{AnswerFault, PortEntry, RouterEntry};

/// The hash of a router that has none in the configuration: a seed of zero is one that is not known.
const UNKNOWN_HASH: RouterHash = RouterHash::Linux { policy: 3, fields: 0x37, seed: 0 };
/// The greatest weight of a member that the engine is given, so that a group's sum has 32 bits.
const MAX_WEIGHT: u32 = 0xffff;

/// Reads the configured ports and the routes.
///
/// # Errors
/// Returns the error of the first failed request.
pub(super) async fn fetch(
    client: &mut Client<'_>,
    entry: &RouterEntry,
    settings: &GnmiSettings,
) -> Result<Answer, GnmiError> {
    let port =
        |port: &PortEntry| Path::of("interfaces").entry("interface", &[("name", &port.name)]);
    let ports: Vec<Path> = entry.ports.iter().map(port).collect();
    let ports = client.read(&ports).await?;
    let statics = client.read_if_present(&[static_route::protocol(settings)]).await?;
    let aft = match settings.routes {
        RouteSource::Static => Tree::default(),
        RouteSource::Aft => {
            let instance = Path::of("network-instances")
                .entry("network-instance", &[("name", &settings.instance)]);
            client.read(&[instance.at("afts")]).await?
        }
    };
    Ok(Answer { ports, statics, aft })
}

/// The answers of a server about its ports and routes.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) ports: Tree,
    pub(super) statics: Tree,
    pub(super) aft: Tree,
}

/// Converts the answers.
///
/// # Errors
/// Returns the first fault.
pub(super) fn convert(
    entry: &RouterEntry,
    settings: &GnmiSettings,
    answer: &Answer,
) -> Result<Tables, AnswerFault> {
    let statics = Statics::of(settings, &answer.statics)?;
    let mut found = Found { ports: &entry.ports, groups: BTreeMap::new(), routes: vec![] };
    match settings.routes {
        RouteSource::Aft => {
            let instance =
                answer.aft.entry("network-instances/network-instance", &settings.instance);
            let aft = instance.and_then(|instance| instance.at("afts"));
            let aft = aft.ok_or_else(|| AnswerFault::Missing("afts".into()))?;
            found.add_forwarding_tables(aft, &statics.ours)?;
        }
        RouteSource::Static => found.add_static_routes(&statics)?,
    }
    let ports = entry.ports.iter().map(|known| port(known, &answer.ports));
    let router = Router {
        name: entry.name.clone(),
        hash: settings.hash.unwrap_or(UNKNOWN_HASH),
        ignore_linkdown: true,
        ipv6: None,
        ports: ports.collect::<Result<_, _>>()?,
        groups: found.groups.into_values().collect(),
        routes: found.routes,
    };
    Ok(Tables { router, foreign: statics.foreign })
}

fn port(known: &PortEntry, tree: &Tree) -> Result<Port, AnswerFault> {
    let missing = |leaf: &str| AnswerFault::Missing(format!("{leaf} of interface {}", known.name));
    let interface = tree.entry("interfaces/interface", &known.name);
    let interface = interface.ok_or_else(|| missing("state"))?;
    let ifindex = interface.leaf("state/ifindex").ok_or_else(|| missing("state/ifindex"))?;
    let reported = || interface.leaf("ethernet/state/port-speed").and_then(speed);
    Ok(Port {
        name: known.name.clone(),
        ifindex: ifindex.parse().map_err(|_| AnswerFault::NoNumber(ifindex.into()))?,
        speed: known.speed.or_else(reported).ok_or_else(|| missing("speed (set `speed`)"))?,
        state: match (interface.leaf("state/admin-status"), interface.leaf("state/oper-status")) {
            (Some("DOWN"), _) => PortState::Down,
            (_, Some("UP")) => PortState::Up,
            _ => PortState::NoCarrier,
        },
        to: known.to.clone(),
    })
}

/// Parses an identity such as `openconfig-if-ethernet:SPEED_100GB`.
fn speed(identity: &str) -> Option<BitRate> {
    let text = without_module(identity).strip_prefix("SPEED_")?;
    let (number, unit) = match text.strip_suffix("GB") {
        Some(number) => (number, 1_000_000_000),
        None => (text.strip_suffix("MB")?, 1_000_000),
    };
    BitRate::bps(number.parse::<u64>().ok()?.checked_mul(unit)?)
}

/// The static routes of the configuration.
struct Statics<'a> {
    all: Vec<(Prefix, &'a Tree)>,
    /// The prefixes of the controller's.
    ours: BTreeSet<Prefix>,
    foreign: Vec<Prefix>,
}

impl<'a> Statics<'a> {
    fn of(settings: &GnmiSettings, tree: &'a Tree) -> Result<Self, AnswerFault> {
        let protocol = static_route::found(settings, tree).into_iter();
        let routes = protocol.flat_map(|it| it.entries("static-routes/static"));
        let all = routes.map(|(prefix, route)| Ok((parse(prefix)?, route)));
        let all: Vec<_> = all.collect::<Result<_, AnswerFault>>()?;
        let (ours, foreign): (Vec<_>, Vec<_>) = all.iter().partition(|(_, route)| is_ours(route));
        let prefix = |(prefix, _): (Prefix, &Tree)| prefix;
        let (ours, foreign) = (ours.into_iter().map(prefix), foreign.into_iter().map(prefix));
        Ok(Self { ours: ours.collect(), foreign: foreign.collect(), all })
    }
}

fn parse(prefix: &str) -> Result<Prefix, AnswerFault> {
    prefix.parse().map_err(|error: PrefixError| error.into())
}

/// The routes that were found, and the groups that they name.
struct Found<'a> {
    ports: &'a [PortEntry],
    groups: BTreeMap<String, Group>,
    routes: Vec<Route>,
}

impl Found<'_> {
    fn add_forwarding_tables(
        &mut self,
        aft: &Tree,
        ours: &BTreeSet<Prefix>,
    ) -> Result<(), AnswerFault> {
        let entries = ["ipv4-unicast/ipv4-entry", "ipv6-unicast/ipv6-entry"];
        for (text, route) in entries.into_iter().flat_map(|list| aft.entries(list)) {
            // An entry that only drops, or leads to the router itself, has no group.
            let Some(group) = route.leaf("state/next-hop-group") else { continue };
            let to = parse(text)?;
            let members = aft.entry("next-hop-groups/next-hop-group", group).into_iter();
            let members = members.flat_map(|group| group.entries("next-hops/next-hop"));
            let members = in_order(members).into_iter().map(|(index, member)| {
                let weight = member.leaf("state/weight").and_then(|weight| weight.parse().ok());
                let hop = aft.entry("next-hops/next-hop", index);
                let leaf = |name| hop.and_then(|hop| hop.leaf(name));
                NextHop {
                    port: leaf("interface-ref/state/interface"),
                    via: leaf("state/ip-address"),
                    weight: weight.unwrap_or(1),
                }
            });
            self.add(to, group, members.collect(), ours.contains(&to))?;
        }
        Ok(())
    }

    fn add_static_routes(&mut self, statics: &Statics<'_>) -> Result<(), AnswerFault> {
        for &(to, route) in &statics.all {
            let hops = in_order(route.entries("next-hops/next-hop"));
            let via =
                |hop: &Tree| hop.leaf("config/next-hop").map(|it| without_module(it).to_owned());
            if hops.iter().any(|(_, hop)| via(hop).as_deref() == Some("DROP")) {
                self.routes.push(Route { to, via: Target::Blackhole, steered: false });
                continue;
            }
            let members = hops.iter().map(|(_, hop)| NextHop {
                port: hop.leaf("interface-ref/config/interface"),
                via: hop.leaf("config/next-hop"),
                weight: 1,
            });
            self.add(to, &to.to_string(), members.collect(), statics.ours.contains(&to))?;
        }
        Ok(())
    }

    /// Adds a route to a group. One that leaves only by ports that are not configured is on no path, and is left out.
    fn add(
        &mut self,
        to: Prefix,
        name: &str,
        hops: Vec<NextHop<'_>>,
        steered: bool,
    ) -> Result<(), AnswerFault> {
        let is_known = |hop: &NextHop<'_>| {
            hop.port.is_some_and(|port| self.ports.iter().any(|known| known.name == port))
        };
        let Some(unknown) = hops.iter().find(|hop| !is_known(hop)) else {
            if !hops.is_empty() {
                self.groups.entry(name.to_owned()).or_insert_with(|| group(name, &hops));
                self.routes.push(Route { to, via: Target::Group(name.to_owned()), steered });
            }
            return Ok(());
        };
        if hops.iter().any(is_known) {
            let hop = unknown.port.or(unknown.via).unwrap_or("nothing").to_owned();
            return Err(AnswerFault::UnknownPort { to, hop });
        }
        Ok(())
    }
}

/// A next hop as a server reports it.
struct NextHop<'a> {
    port: Option<&'a str>,
    via: Option<&'a str>,
    weight: u32,
}

fn group(name: &str, hops: &[NextHop<'_>]) -> Group {
    let member = |hop: &NextHop<'_>| Member {
        port: hop.port.unwrap_or_default().to_owned(),
        via: hop.via.and_then(|via| via.parse::<IpAddr>().ok()),
        weight: hop.weight.clamp(1, MAX_WEIGHT),
        unreachable: false,
    };
    let kind = if hops.len() == 1 { GroupKind::Single } else { GroupKind::HashThreshold };
    Group { name: name.to_owned(), kind, members: hops.iter().map(member).collect() }
}

/// Returns entries in the order of their numbers: 2 before 10.
fn in_order<'a>(entries: impl Iterator<Item = (&'a str, &'a Tree)>) -> Vec<(&'a str, &'a Tree)> {
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by_key(|&(index, _)| (index.parse::<u64>().unwrap_or(u64::MAX), index));
    entries
}

#[cfg(test)]
mod tests;
