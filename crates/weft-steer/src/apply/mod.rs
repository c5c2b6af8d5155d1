//! Making a router send a destination elsewhere, and undoing it.
//!
//! A [`Change`] is planned from the tables as they are ([`RouterEntry::plan`]), which is all that a dry run
//! does; carried out under the router's lease ([`RouterEntry::carry_out`]); and believed only when the
//! router's kernel shows it ([`RouterEntry::await_change`]).

pub(crate) mod frr;
mod kernel;

use std::fmt;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weft_route::Prefix;
use weft_route::installed::{Member, Router, Target};

use crate::lease::Lease;
use crate::tables::{NextHop, RouteEntry, Shown};
use crate::{Method, RouterEntry, SteerError};

/// The protocol number of the controller's routes in the kernel (`ip route show proto 200`).
pub const PROTOCOL: u8 = 200;

/// How often tables are read again while a change is awaited.
const POLL: Duration = Duration::from_millis(50);

/// What a router shall do with a destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The destination.
    pub destination: IpAddr,
    /// The next hops that shall lead there; none for as it was without the controller.
    pub members: Option<Vec<Member>>,
}

/// What will be done at a router, as people would type it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The router.
    pub router: String,
    /// Commands in order.
    pub commands: Vec<String>,
}

impl Change {
    /// A destination by these ports, equally much by each.
    pub fn by<'a>(
        destination: impl Into<IpAddr>,
        ports: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let member =
            |port: &str| Member { port: port.into(), via: None, weight: 1, unreachable: false };
        let members = Some(ports.into_iter().map(member).collect());
        Self { destination: destination.into(), members }
    }

    /// A destination as it was without the controller.
    pub fn back(destination: impl Into<IpAddr>) -> Self {
        Self { destination: destination.into(), members: None }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.members {
            Some(members) => {
                let ports: Vec<&str> = members.iter().map(|it| it.port.as_str()).collect();
                write!(out, "{} by {}", self.destination, ports.join(", "))
            }
            None => write!(out, "{} as without the controller", self.destination),
        }
    }
}

impl RouterEntry {
    /// What has to be done for a change, by the tables as they are now.
    ///
    /// # Errors
    /// `Refused` when the router has no route to the destination, or none by those ports; `Command`, `Io`
    /// or `Answer` when its tables cannot be read.
    pub fn plan(&self, change: &Change) -> Result<Plan, SteerError> {
        let shown = self.show()?;
        let refused = |reason| SteerError::Refused { router: self.name.clone(), reason };
        let commands = match &self.apply {
            Method::Kernel => kernel::commands(&shown, change).map_err(refused)?,
            Method::Frr { vty_socket } => {
                let ways = ways(&shown, change).map_err(refused)?;
                let configured = frr::configured(self, vty_socket.as_deref())?;
                frr::commands(vty_socket.as_deref(), &configured, &ways, change).map_err(refused)?
            }
        };
        Ok(Plan { router: self.name.clone(), commands })
    }

    /// Carries a plan out, if the lease is still ours.
    ///
    /// # Errors
    /// `Held` when another controller steers; `Command` with the router's words; `Io`.
    pub fn carry_out(&self, plan: &Plan, lease: &Lease) -> Result<(), SteerError> {
        lease.run(self, &plan.commands.join("\n"))
    }

    /// Reads tables until they show a change, and returns them.
    ///
    /// # Errors
    /// `Refused` with what they show instead when `patience` is over; what reading them fails with.
    pub fn await_change(&self, change: &Change, patience: Duration) -> Result<Router, SteerError> {
        let give_up = Instant::now() + patience;
        loop {
            let router = self.read()?;
            match difference(&router, change) {
                None => return Ok(router),
                Some(reason) if Instant::now() >= give_up => {
                    return Err(SteerError::Refused { router: self.name.clone(), reason });
                }
                Some(_) => thread::sleep(POLL),
            }
        }
    }
}

/// What tables show instead of a change, if anything.
pub(crate) fn difference(router: &Router, change: &Change) -> Option<String> {
    let to = Prefix::host(change.destination);
    let route = router.routes.iter().find(|route| route.to == to);
    let Some(wanted) = &change.members else {
        let steered = route.is_some_and(|route| route.steered);
        return steered.then(|| format!("{to} is still steered"));
    };
    let Some(route) = route else { return Some(format!("there is no route to {to}")) };
    let Target::Group(name) = &route.via else { return Some(format!("{to} is dropped")) };
    let group = router.groups.iter().find(|group| group.name == *name);
    let mut found: Vec<&str> =
        group.into_iter().flat_map(|group| &group.members).map(|it| it.port.as_str()).collect();
    let mut wanted: Vec<&str> = wanted.iter().map(|it| it.port.as_str()).collect();
    found.sort_unstable();
    wanted.sort_unstable();
    (found != wanted)
        .then(|| format!("{to} goes by {}, not by {}", found.join(", "), wanted.join(", ")))
}

/// The next hops that the router's own routing has for a destination: those of the longest prefix that is
/// not the controller's, with those of the next shorter one where a change has narrowed the first.
fn ways(shown: &Shown, change: &Change) -> Result<Vec<NextHop>, String> {
    let address = change.destination;
    let own = |route: &&RouteEntry| route.protocol != PROTOCOL.to_string();
    let prefix = |route: &RouteEntry| route.dst.parse::<Prefix>().ok();
    let mut routes: Vec<(Prefix, &RouteEntry)> = shown
        .routes
        .iter()
        .filter(own)
        .filter_map(|route| Some((prefix(route)?, route)))
        .filter(|(prefix, _)| prefix.contains(address))
        .collect();
    routes.sort_by_key(|(prefix, route)| (std::cmp::Reverse(prefix.len()), route.metric));
    let mut ways: Vec<NextHop> = vec![];
    // A route for one address may be what the controller left of a wider choice; a default route is no such choice.
    let narrowed = routes.first().is_some_and(|(prefix, _)| prefix.is_host());
    let used = routes
        .iter()
        .enumerate()
        .filter(|&(at, (prefix, _))| at == 0 || (at == 1 && narrowed && prefix.len() > 0));
    for (_, (_, route)) in used {
        for hop in hops(shown, route) {
            if !ways.iter().any(|way| way.dev == hop.dev) {
                ways.push(hop);
            }
        }
    }
    // Whoever may name an interface on the router shall not run commands there as its administrator.
    if let Some(way) = ways.iter().find(|way| !way.is_plain()) {
        return Err(format!(
            "{:?} is no name that a shell may read: rename the interface",
            way.dev.as_deref().unwrap_or_default()
        ));
    }
    if ways.is_empty() { Err(format!("no route to {}", change.destination)) } else { Ok(ways) }
}

/// A route's next hops, those of nexthop objects too.
fn hops(shown: &Shown, route: &RouteEntry) -> Vec<NextHop> {
    let Some(id) = route.nhid else { return route.hops() };
    let object = |id: u32| shown.nexthops.iter().find(|object| object.id == id);
    let Some(found) = object(id) else { return route.hops() };
    if found.group.is_empty() {
        return vec![found.hop.clone()];
    }
    let members = found.group.iter().filter_map(|member| {
        Some(NextHop { weight: member.weight, ..object(member.id)?.hop.clone() })
    });
    members.collect()
}

#[cfg(test)]
mod tests;
