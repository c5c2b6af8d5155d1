//! Routers that are read and steered by gNMI, such as SONiC's and others with OpenConfig's models: interfaces, counters,
//! forwarding tables, and static routes.
//!
//! | step | where |
//! | --- | --- |
//! | a server's address, certificates, models | `settings.rs` |
//! | requests, with timeouts and limits | `client.rs` |
//! | an answer as a tree, whatever its encoding | `tree.rs` |
//! | the tree as the engine's router | `tables.rs` |
//! | counters of ports and of marked packets | `counters.rs` |
//! | a static route for one destination | `static_route.rs` |
//!
//! `apply/gnmi.rs` plans changes. This module never knows why a route is changed.

mod client;
mod counters;
mod error;
mod path;
mod proto;
mod settings;
mod static_route;
mod tables;
#[cfg(test)]
mod tests;
mod tree;

use std::fmt;

use weft_route::installed::Router;

use self::proto::gnmi::Path;
use self::tree::Tree;
use crate::lease::Grant;
use crate::{AnswerFault, RouterEntry, SteerError};

pub(crate) use counters::PortCounters;
pub use error::GnmiError;
pub use settings::{GnmiSettings, GnmiSettingsError, GnmiTls, MarkCounters, RouteSource};
pub(crate) use static_route::{delete, replace};
pub use tree::TreeFault;

/// A change of a server's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// Deletes a path with all below it.
    Delete(Path),
    /// Replaces the value at a path.
    Replace(Path, serde_json::Value),
}

impl fmt::Display for Edit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delete(path) => write!(out, "delete {path}"),
            Self::Replace(path, value) => write!(out, "replace {path} {value}"),
        }
    }
}

/// A router's tables, with the static routes of others, which a change must not replace.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    pub(crate) router: Router,
    /// The prefixes of static routes without the controller's tag.
    pub(crate) foreign: Vec<weft_route::Prefix>,
}

/// Reads a router's ports and routes.
///
/// # Errors
/// Returns `Gnmi` if its server does not answer, `Answer` if its answer cannot be converted.
pub(crate) fn read(entry: &RouterEntry, settings: &GnmiSettings) -> Result<Tables, SteerError> {
    let tree = client::run(settings, async |client| tables::fetch(client, entry, settings).await);
    let tree = tree.map_err(failed(entry, settings))?;
    tables::convert(entry, settings, &tree).map_err(unreadable(entry))
}

/// Parses a router's whole data tree, a JSON document (RFC 7951) that was obtained by other means.
///
/// # Errors
/// Returns `Answer` if it cannot be converted.
pub(crate) fn parse(
    entry: &RouterEntry,
    settings: &GnmiSettings,
    document: &str,
) -> Result<Router, SteerError> {
    let tree = Tree::of_document(document).map_err(|fault| unreadable(entry)(fault.into()))?;
    let answer = tables::Answer { ports: tree.clone(), statics: tree.clone(), aft: tree };
    Ok(tables::convert(entry, settings, &answer).map_err(unreadable(entry))?.router)
}

fn unreadable(entry: &RouterEntry) -> impl FnOnce(AnswerFault) -> SteerError {
    let router = entry.name.clone();
    move |reason| SteerError::Answer { router, what: "its gNMI answer", reason }
}

/// Reads the counters of a router's ports.
///
/// # Errors
/// Returns the errors of [`read`].
pub(crate) fn count(
    entry: &RouterEntry,
    settings: &GnmiSettings,
) -> Result<Vec<PortCounters>, SteerError> {
    let tree = client::run(settings, async |client| counters::fetch(client, entry, settings).await);
    let tree = tree.map_err(failed(entry, settings))?;
    Ok(counters::convert(entry, settings, &tree))
}

/// Makes changes, all or none of them. With arbitration, the router refuses them if it has seen a greater grant.
///
/// # Errors
/// Returns `Gnmi` with the path of the first change.
pub(crate) fn change(
    entry: &RouterEntry,
    settings: &GnmiSettings,
    edits: &[Edit],
    grant: Grant,
) -> Result<(), SteerError> {
    if edits.is_empty() {
        return Ok(());
    }
    let election = settings.arbitration.then_some(grant);
    client::run(settings, async |client| client.set(edits, election).await)
        .map_err(failed(entry, settings))
}

/// Becomes the router's master, if it arbitrates: it refuses what controllers with earlier grants still send. This is the empty
/// Set that a new master has to send (gNMI master arbitration, section 3.2).
///
/// # Errors
/// Returns `Gnmi` if the router has seen a greater grant, or does not answer.
pub(crate) fn claim(
    entry: &RouterEntry,
    settings: &GnmiSettings,
    grant: Grant,
) -> Result<(), SteerError> {
    if !settings.arbitration {
        return Ok(());
    }
    client::run(settings, async |client| client.set(&[], Some(grant)).await)
        .map_err(failed(entry, settings))
}

fn failed(entry: &RouterEntry, settings: &GnmiSettings) -> impl FnOnce(GnmiError) -> SteerError {
    let (router, address) = (entry.name.clone(), settings.address.clone());
    move |reason| SteerError::Gnmi { router, address, reason }
}
