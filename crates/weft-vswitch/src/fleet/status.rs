//! The state of a host in its fleet.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The state of a host in its fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetStatus {
    /// The host's name.
    pub name: String,
    /// The member of etcd that sends changes; `None` while there is none, and the host goes on with what it knows.
    pub etcd: Option<String>,
    /// `true` if the host is registered and its lease is valid.
    pub registered: bool,
    /// The revision of the newest change that is known.
    pub revision: i64,
    /// Numbers of objects that the host knows, by kind.
    pub objects: BTreeMap<String, usize>,
    /// Number of times that etcd was lost.
    pub disconnects: u64,
    /// Number of changes of the part that were applied, and of those that were refused.
    pub applied: (u64, u64),
    /// The reason that etcd is not reached or the host not registered.
    pub error: Option<String>,
    /// The reason that the newest part is not in force.
    pub refused: Option<String>,
    /// The faults of objects by key, whose former values stay, and those of ports that cannot be opened.
    pub faults: BTreeMap<String, String>,
}
