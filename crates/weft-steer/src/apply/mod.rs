//! Changes of a router's next hops for a destination.
//!
//! A [`Change`] is planned from the present tables ([`RouterEntry::plan`]), which is all that a dry run does; carried
//! out under the router's lease ([`RouterEntry::carry_out`]); and confirmed only when the router's kernel shows it
//! ([`RouterEntry::await_change`]).

pub(crate) mod frr;
mod gnmi;
mod kernel;
mod refusal;

use std::fmt;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weft_route::Prefix;
use weft_route::installed::{Member, Router, Target};

pub use refusal::Refusal;

use crate::gnmi::Edit;
use crate::lease::Lease;
use crate::tables::{NextHop, RouteEntry, Shown};
use crate::{Method, RouterEntry, SteerError};

/// The protocol number of the controller's routes in the kernel (`ip route show proto 200`).
pub const PROTOCOL: u8 = 200;

/// The interval at which tables are read while a change is awaited.
const POLL: Duration = Duration::from_millis(50);

/// The wanted next hops of a router for a destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The destination.
    pub destination: IpAddr,
    /// The wanted next hops; none to restore the state without the controller.
    pub members: Option<Vec<Member>>,
}

/// The commands of a change, as a person would type them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// The router.
    pub router: String,
    /// The commands in order.
    pub commands: Vec<String>,
    /// The same for a gNMI server, which has no commands.
    #[serde(skip)]
    pub(crate) edits: Vec<Edit>,
}

impl Plan {
    /// Returns a plan of these commands of a shell.
    pub fn of_commands(router: impl Into<String>, commands: Vec<String>) -> Self {
        Self { router: router.into(), commands, edits: vec![] }
    }
}

impl Change {
    /// Returns a change to these ports with equal weights.
    pub fn by<'a>(
        destination: impl Into<IpAddr>,
        ports: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let member =
            |port: &str| Member { port: port.into(), via: None, weight: 1, unreachable: false };
        let members = Some(ports.into_iter().map(member).collect());
        Self { destination: destination.into(), members }
    }

    /// Returns a change that restores the state without the controller.
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
    /// Plans the commands of a change from the present tables.
    ///
    /// # Errors
    /// Returns `Refused` if the router has no route to the destination, or none by those ports; `Command`, `Io` or
    /// `Answer` if its tables cannot be read.
    pub fn plan(&self, change: &Change) -> Result<Plan, SteerError> {
        let refused = |reason| SteerError::Refused { router: self.name.clone(), reason };
        let mut edits = vec![];
        let commands = match &self.apply {
            Method::Kernel => kernel::commands(&self.show()?, change).map_err(refused)?,
            Method::Gnmi(settings) => {
                let tables = crate::gnmi::read(self, settings)?;
                edits = gnmi::edits(settings, &tables, change).map_err(refused)?;
                edits.iter().map(ToString::to_string).collect()
            }
            Method::Frr { vty_socket } => {
                let shown = self.show()?;
                let candidates = candidates(&shown, change).map_err(refused)?;
                let configured = frr::configured(self, vty_socket.as_deref())?;
                frr::commands(vty_socket.as_deref(), &configured, &candidates, change)
                    .map_err(refused)?
            }
        };
        Ok(Plan { router: self.name.clone(), commands, edits })
    }

    /// Carries out a plan if this controller still holds the lease.
    ///
    /// # Errors
    /// Returns `Held` if another controller holds the lease, `Command` or `Gnmi` with the router's message, or `Io`.
    pub fn carry_out(&self, plan: &Plan, lease: &Lease) -> Result<(), SteerError> {
        match &self.apply {
            Method::Gnmi(settings) => {
                let granted = lease.granted(self)?;
                crate::gnmi::change(self, settings, &plan.edits, granted)
            }
            Method::Kernel | Method::Frr { .. } => {
                lease.run(self, &plan.commands.join("\n")).map(drop)
            }
        }
    }

    /// Reads tables until they show a change, and returns them.
    ///
    /// # Errors
    /// Returns `Refused` with the tables' state if `timeout` passes, or the error of reading them.
    pub fn await_change(&self, change: &Change, timeout: Duration) -> Result<Router, SteerError> {
        let deadline = Instant::now() + timeout;
        loop {
            let router = self.read()?;
            match difference(&router, change) {
                None => return Ok(router),
                Some(reason) if Instant::now() >= deadline => {
                    return Err(SteerError::Refused { router: self.name.clone(), reason });
                }
                Some(_) => thread::sleep(POLL),
            }
        }
    }
}

/// Returns the difference between tables and a change, if there is one.
pub(crate) fn difference(router: &Router, change: &Change) -> Option<Refusal> {
    let to = Prefix::host(change.destination);
    let route = router.routes.iter().find(|route| route.to == to);
    let Some(wanted) = &change.members else {
        let steered = route.is_some_and(|route| route.steered);
        return steered.then_some(Refusal::StillSteered(to));
    };
    let Some(route) = route else { return Some(Refusal::Missing(to)) };
    let Target::Group(name) = &route.via else { return Some(Refusal::Dropped(to)) };
    let group = router.groups.iter().find(|group| group.name == *name);
    let mut found: Vec<&str> =
        group.into_iter().flat_map(|group| &group.members).map(|it| it.port.as_str()).collect();
    let mut wanted: Vec<&str> = wanted.iter().map(|it| it.port.as_str()).collect();
    found.sort_unstable();
    wanted.sort_unstable();
    let owned = |ports: &[&str]| ports.iter().map(|&port| port.to_owned()).collect();
    (found != wanted).then(|| Refusal::Otherwise {
        to,
        found: owned(&found),
        wanted: owned(&wanted),
    })
}

/// Returns the next hops that the router's own routing has for a destination: those of the longest prefix that is not
/// the controller's, and those of the next shorter one if a change may have narrowed the first.
fn candidates(shown: &Shown, change: &Change) -> Result<Vec<NextHop>, Refusal> {
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
    let mut candidates: Vec<NextHop> = vec![];
    // A host route may be a wider choice that the controller has narrowed; a default route is never that wider choice.
    let narrowed = routes.first().is_some_and(|(prefix, _)| prefix.is_host());
    let used = routes
        .iter()
        .enumerate()
        .filter(|&(at, (prefix, _))| at == 0 || (at == 1 && narrowed && prefix.len() > 0));
    for (_, (_, route)) in used {
        for hop in hops(shown, route) {
            if !candidates.iter().any(|known| known.dev == hop.dev) {
                candidates.push(hop);
            }
        }
    }
    // A person who may name an interface on the router must not be able to run commands there as its administrator.
    if let Some(hop) = candidates.iter().find(|hop| !hop.is_plain()) {
        return Err(Refusal::Unsafe { device: hop.dev.clone().unwrap_or_default() });
    }
    if candidates.is_empty() { Err(Refusal::NoRoute(change.destination)) } else { Ok(candidates) }
}

/// Returns a route's next hops, also those of nexthop objects.
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
