//! The kernel's method: a route for one address beside those of the routing protocol. The kernel removes it with its
//! last link, and packets then use the protocol's prefix.

use std::net::IpAddr;

use weft_route::Prefix;
use weft_route::installed::Member;

use super::{Change, PROTOCOL, Refusal, candidates};
use crate::tables::{NextHop, Shown};

/// Returns the commands of a change, given the router's tables. Returns none if no route is to be removed.
///
/// # Errors
/// Returns the reason why the change is refused.
pub(super) fn commands(shown: &Shown, change: &Change) -> Result<Vec<String>, Refusal> {
    let to = Prefix::host(change.destination);
    // The default metric of IPv4 is zero, which precedes any routing protocol's; that of IPv6 is 1024.
    let (ip, metric, max_metric) = match change.destination {
        IpAddr::V4(_) => ("ip", "", 0),
        IpAddr::V6(_) => ("ip -6", " metric 1", 1),
    };
    let same = |dst: &str| dst.parse() == Ok(to);
    let ours = shown.routes.iter().any(|route| same(&route.dst) && is_ours(&route.protocol));
    let Some(members) = &change.members else {
        let delete = format!("{ip} route del {to} proto {PROTOCOL}{metric}");
        return Ok(if ours { vec![delete] } else { vec![] });
    };
    let other = |route: &&crate::tables::RouteEntry| {
        same(&route.dst) && route.metric <= max_metric && !is_ours(&route.protocol)
    };
    if let Some(route) = shown.routes.iter().find(other) {
        let (protocol, metric) = (route.protocol.clone(), route.metric);
        return Err(Refusal::WouldReplace { to, protocol, metric });
    }
    let candidates = candidates(shown, change)?;
    let mut words = vec![];
    for Member { port, weight, .. } in members {
        let hop = candidates.iter().find(|hop| hop.dev.as_ref() == Some(port) && !hop.has("dead"));
        let Some(next_hop) = hop.and_then(NextHop::words) else {
            let there = candidates.iter().filter_map(|hop| hop.dev.clone()).collect();
            return Err(Refusal::NoRouteBy { to, port: port.clone(), there });
        };
        words.push((next_hop, *weight));
    }
    let next_hops = match words.as_slice() {
        [] => return Err(Refusal::NoNextHop(to)),
        [(only, _)] => format!(" {only}"),
        several => {
            several.iter().map(|(hop, weight)| format!(" nexthop {hop} weight {weight}")).collect()
        }
    };
    Ok(vec![format!("{ip} route replace {to} proto {PROTOCOL}{metric}{next_hops}")])
}

fn is_ours(protocol: &str) -> bool {
    protocol.parse() == Ok(PROTOCOL)
}
