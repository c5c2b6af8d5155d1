//! A route for one address beside the routing protocol's. It is gone with its last link, and packets fall back to the
//! protocol's prefix.

use std::net::IpAddr;

use weft_route::Prefix;
use weft_route::installed::Member;

use super::{Change, PROTOCOL, ways};
use crate::tables::{NextHop, Shown};

pub(super) fn commands(shown: &Shown, change: &Change) -> Result<Vec<String>, String> {
    let to = Prefix::host(change.destination);
    // Of IPv4 the metric is zero if not given, which is better than any routing protocol's; of IPv6 it is 1024.
    let (ip, metric, best) = match change.destination {
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
        same(&route.dst) && route.metric <= best && !is_ours(&route.protocol)
    };
    if let Some(route) = shown.routes.iter().find(other) {
        return Err(format!(
            "{to} has a route of protocol {} with metric {}, which ours would replace: give that a higher metric",
            route.protocol, route.metric
        ));
    }
    let ways = ways(shown, change)?;
    let mut words = vec![];
    for Member { port, weight, .. } in members {
        let way = ways.iter().find(|way| way.dev.as_ref() == Some(port) && !way.has("dead"));
        let Some(next_hop) = way.and_then(NextHop::words) else {
            let there: Vec<&str> = ways.iter().filter_map(|way| way.dev.as_deref()).collect();
            return Err(format!("no route to {to} by {port}, only by {}", there.join(", ")));
        };
        words.push((next_hop, *weight));
    }
    let next_hops = match words.as_slice() {
        [] => return Err(format!("{to} would have no way at all")),
        [(only, _)] => format!(" {only}"),
        many => {
            many.iter().map(|(hop, weight)| format!(" nexthop {hop} weight {weight}")).collect()
        }
    };
    Ok(vec![format!("{ip} route replace {to} proto {PROTOCOL}{metric}{next_hops}")])
}

fn is_ours(protocol: &str) -> bool {
    protocol.parse() == Ok(PROTOCOL)
}
