//! The changes made by command, which survive reloads and restarts: they are applied over the configuration, and kept in
//! a file.
//!
//! A change is the request that made it; the newest of each item replaces the earlier ones. One that the configuration
//! has taken over is forgotten at the next reload or start, and so is one of an item that is no more.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weft_vpc::SecurityGroupConfig;

use crate::OpenError;
use crate::config::{Config, ConfigError, Destination, Port, Route, value};
use crate::control::Request;

/// The item that a request changes, in the order in which changes are applied.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Network(u32),
    Peer(u32, IpAddr),
    Port(String),
    Route(u32, Destination),
    Limit(String),
    Acl(String),
}

/// The changes made by command, the newest of each item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Request>", into = "Vec<Request>")]
pub(crate) struct Changes(BTreeMap<Item, Request>);

/// Returns the item that a request changes; `None` if the request is not to be kept.
fn item(request: &Request) -> Option<Item> {
    Some(match request {
        Request::AddPort { port } => Item::Port(port.name.clone()),
        Request::RemovePort { name } => Item::Port(name.clone()),
        Request::SetNetwork { network } => Item::Network(network.vni),
        Request::Peer { vni, peer, .. } => Item::Peer(*vni, *peer),
        Request::SetRoute { route } => Item::Route(route.vni, route.destination()),
        Request::ForgetRoute { vni, destination } => Item::Route(*vni, *destination),
        Request::Limit { port, .. } => Item::Limit(port.clone()),
        Request::Acl { port, .. } => Item::Acl(port.clone()),
        // Frames are lost and captured for a test; the others change nothing, or everything.
        Request::Status
        | Request::Changes
        | Request::Reload { .. }
        | Request::Lose { .. }
        | Request::Capture { .. } => return None,
    })
}

impl Changes {
    /// Returns `true` if there is no change.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the changes as the requests that made them.
    fn requests(&self) -> impl Iterator<Item = &Request> {
        self.0.values()
    }

    /// Adds a change in place of earlier ones of the same item and of its parts.
    fn record(&mut self, request: &Request) {
        let Some(item) = item(request) else { return };
        match &item {
            Item::Port(name) => {
                self.0.remove(&Item::Limit(name.clone()));
                self.0.remove(&Item::Acl(name.clone()));
            }
            Item::Network(vni) => {
                self.0.retain(|known, _| !matches!(known, Item::Peer(of, _) if of == vni));
            }
            _ => {}
        }
        self.0.insert(item, request.clone());
    }

    /// Returns the changes with one more, unless `file` has that one already.
    pub(crate) fn with(&self, request: &Request, file: &Config) -> Self {
        let mut changes = self.clone();
        changes.record(request);
        let route = |key| file.routes.iter().find(|it| (it.vni, it.destination()) == key);
        if changes.is_known(request, file, &route) {
            item(request).and_then(|item| changes.0.remove(&item));
        }
        changes
    }

    /// Returns `true` if a port of this name is added.
    pub(crate) fn adds_port(&self, name: &str) -> bool {
        matches!(self.0.get(&Item::Port(name.to_owned())), Some(Request::AddPort { .. }))
    }

    /// Returns the configuration of a file with the changes in it.
    ///
    /// # Errors
    /// The two contradict each other.
    pub(crate) fn apply(&self, config: &Config) -> Result<Config, OpenError> {
        let file = config.host.state_file();
        self.checked(config).map_err(|cause| OpenError::Changes { cause: Box::new(cause), file })
    }

    /// Returns the configuration of a file with the changes in it.
    ///
    /// # Errors
    /// The first value that the changes make invalid.
    pub(crate) fn checked(&self, config: &Config) -> Result<Config, ConfigError> {
        if self.is_empty() {
            return Ok(config.clone());
        }
        let mut changed = config.without_routes();
        for request in self.requests() {
            apply(request, &mut changed)?;
        }
        let item = |route: &Route| Item::Route(route.vni, route.destination());
        let untouched = config.routes.iter().filter(|route| !self.0.contains_key(&item(route)));
        changed.routes.extend(untouched.cloned());
        changed.check()?;
        Ok(changed)
    }

    /// Returns the changes without those that `config` has already, and those of items that are no more.
    pub(crate) fn without_known(&self, config: &Config) -> Self {
        let routes = self.routes_of(config);
        let route = |key| routes.get(&key).copied();
        let kept = self.0.iter().filter(|(_, request)| !self.is_known(request, config, &route));
        Self(kept.map(|(item, request)| (item.clone(), request.clone())).collect())
    }

    /// Returns the number of changes that `file` has the item of, other than it is in force.
    pub(crate) fn count_overriding(&self, file: &Config) -> usize {
        let routes = self.routes_of(file);
        let port = |name: &str| file.ports.iter().find(|port| port.name == name);
        let overrides = |request: &&Request| match request {
            Request::AddPort { port: own } => port(&own.name).is_some(),
            Request::SetNetwork { network } => file.networks.iter().any(|it| it.vni == network.vni),
            Request::SetRoute { route } => routes.contains_key(&(route.vni, route.destination())),
            Request::Limit { port: name, .. } => port(name)
                .is_some_and(|it| it.policies.ingress.is_some() || it.policies.egress.is_some()),
            Request::Acl { port: name, .. } => {
                port(name).is_some_and(|it| it.policies.acl.is_some())
            }
            // One without an item in the file is known to the file, and not kept.
            Request::RemovePort { .. } | Request::ForgetRoute { .. } => true,
            Request::Peer { remove, .. } => *remove,
            _ => false,
        };
        self.without_known(file).requests().filter(overrides).count()
    }

    /// Returns the routes of a configuration by destination, if any route is changed.
    fn routes_of<'a>(&self, config: &'a Config) -> BTreeMap<(u32, Destination), &'a Route> {
        let has_routes = self.0.keys().any(|item| matches!(item, Item::Route(..)));
        let routes = config.routes.iter().filter(|_| has_routes);
        routes.map(|route| ((route.vni, route.destination()), route)).collect()
    }

    /// Returns `true` if a change makes no difference to `config`, whose routes `route` returns.
    fn is_known<'a>(
        &self,
        request: &Request,
        config: &Config,
        route: &dyn Fn((u32, Destination)) -> Option<&'a Route>,
    ) -> bool {
        let port = |name: &str| config.ports.iter().find(|port| port.name == name);
        let is_own = |name: &str| {
            let own = self.0.get(&Item::Port(name.to_owned()));
            matches!(own, Some(Request::AddPort { port: own }) if !is_known_port(own, port(name)))
        };
        match request {
            Request::SetRoute { route: own } => route((own.vni, own.destination())) == Some(own),
            Request::ForgetRoute { vni, destination } => route((*vni, *destination)).is_none(),
            Request::SetNetwork { network } => config.networks.contains(network),
            Request::AddPort { port: own } => is_known_port(own, port(&own.name)),
            Request::RemovePort { name } => port(name).is_none(),
            Request::Peer { vni, peer, remove } => {
                let network = self.network(*vni, config);
                network.is_none_or(|peers| peers.contains(peer) != *remove)
            }
            Request::Limit { port: name, ingress, egress } => match port(name) {
                _ if is_own(name) => false,
                Some(port) => (port.policies.ingress, port.policies.egress) == (*ingress, *egress),
                None => true,
            },
            Request::Acl { port: name, acl } => match port(name) {
                _ if is_own(name) => false,
                Some(port) => {
                    let mut acls = config.policies.acls.iter();
                    let found = acls.find(|it| Some(&it.name) == port.policies.acl.as_ref());
                    found == acl.as_ref() && port.policies.acl.is_some() == acl.is_some()
                }
                None => true,
            },
            _ => true,
        }
    }

    /// Returns the other hosts of a network, before changes of single hosts.
    fn network<'a>(&'a self, vni: u32, config: &'a Config) -> Option<&'a BTreeSet<IpAddr>> {
        match self.0.get(&Item::Network(vni)) {
            Some(Request::SetNetwork { network }) => Some(&network.peers),
            _ => config.networks.iter().find(|it| it.vni == vni).map(|it| &it.peers),
        }
    }
}

/// Applies a change to a configuration; one of an item that does not exist changes nothing.
///
/// # Errors
/// It would change another item too.
fn apply(request: &Request, config: &mut Config) -> Result<(), ConfigError> {
    let port = |config: &mut Config, name: &str, change: &dyn Fn(&mut Port)| {
        config.ports.iter_mut().filter(|port| port.name == name).for_each(change);
    };
    match request {
        Request::SetNetwork { network } => {
            config.networks.retain(|known| known.vni != network.vni);
            config.networks.push(network.clone());
        }
        Request::Peer { vni, peer, remove } => {
            for network in config.networks.iter_mut().filter(|known| known.vni == *vni) {
                if *remove {
                    network.peers.remove(peer);
                } else {
                    network.peers.insert(*peer);
                }
            }
        }
        Request::AddPort { port } => {
            let of_file = config.ports.iter().find(|known| known.name == port.name);
            let port = with_policies(over(port, of_file), config);
            config.ports.retain(|known| known.name != port.name);
            config.ports.push(port);
        }
        Request::RemovePort { name } => config.ports.retain(|known| known.name != *name),
        Request::SetRoute { route } => config.routes.push(route.clone()),
        Request::Limit { port: name, ingress, egress } => port(config, name, &|port| {
            (port.policies.ingress, port.policies.egress) = (*ingress, *egress);
        }),
        Request::Acl { port: name, acl } => {
            if let Some(acl) = acl {
                let shares = |port: &Port| {
                    port.name != *name && port.policies.acl.as_ref() == Some(&acl.name)
                };
                if config.ports.iter().any(shares) {
                    let expected = "a name that no other port's access list has";
                    return Err(value("acl.name", &acl.name, expected));
                }
                config.policies.acls.retain(|known| known.name != acl.name);
                config.policies.acls.push(acl.clone());
            }
            port(config, name, &|port| {
                port.policies.acl = acl.as_ref().map(|acl| acl.name.clone())
            });
        }
        _ => {}
    }
    Ok(())
}

/// Returns a port added by command with those policies of the file's port of the same name that it does not have.
fn over(port: &Port, of_file: Option<&Port>) -> Port {
    let of_file = of_file.map(|port| port.policies.clone()).unwrap_or_default();
    Port { policies: port.policies.clone().or(of_file), ..port.clone() }
}

/// The security group without rules of a port whose policies the fleet does not have yet. No policy of a file may be
/// called so.
const AWAITED: &str = "weft.awaited";

/// Returns a port added by command with the security groups that the fleet has for it; until it has some, a port that
/// waits for them has the group that lets nothing pass.
fn with_policies(mut port: Port, config: &mut Config) -> Port {
    if let Some(own) = config.port_policies.iter().find(|own| port.has(own)) {
        port.policies.security_groups.clone_from(&own.security_groups);
    } else if port.await_policies {
        port.policies.security_groups = vec![AWAITED.into()];
        let groups = &mut config.policies.security_groups;
        if !groups.iter().any(|group| group.name == AWAITED) {
            groups.push(SecurityGroupConfig {
                name: AWAITED.into(),
                members: vec![],
                rules: vec![],
            });
        }
    }
    port
}

/// Returns `true` if the file's port of the same name is the one that a command added.
fn is_known_port(port: &Port, of_file: Option<&Port>) -> bool {
    of_file == Some(&over(port, of_file))
}

impl From<Vec<Request>> for Changes {
    fn from(requests: Vec<Request>) -> Self {
        let mut changes = Self::default();
        requests.iter().for_each(|request| changes.record(request));
        changes
    }
}

impl From<Changes> for Vec<Request> {
    fn from(changes: Changes) -> Self {
        changes.0.into_values().collect()
    }
}

#[cfg(test)]
mod tests;
