//! The errors of reading, watching and steering routers.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use weft_units::Duration;

use crate::probe::ProbePlanError;
use crate::{AnswerFault, GnmiError, GnmiSettingsError, Refusal};

/// An error of work with real routers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SteerError {
    /// A configuration file that cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// An invalid configuration.
    #[error("{}: {reason}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The fault, with its line if known.
        reason: ConfigError,
    },
    /// A command that failed at a router.
    #[error("router {router:?}: `{command}` failed: {stderr}")]
    Command {
        /// The router.
        router: String,
        /// The command.
        command: String,
        /// The text on its standard error.
        stderr: String,
    },
    /// An answer of a router that cannot be parsed.
    #[error("router {router:?}: cannot parse {what}: {reason}")]
    Answer {
        /// The router.
        router: String,
        /// The part of the answer.
        what: &'static str,
        /// The place and reason of the failure.
        reason: AnswerFault,
    },
    /// A router's gNMI server that cannot be reached or refuses a request.
    #[error("router {router:?}: gNMI at {address}: {reason}")]
    Gnmi {
        /// The router.
        router: String,
        /// The server's address.
        address: String,
        /// The path and the reason, with the fix where it is known.
        reason: GnmiError,
    },
    /// A move that the router's tables do not permit.
    #[error("router {router:?}: {reason}")]
    Refused {
        /// The router.
        router: String,
        /// The reason and the remedy.
        reason: Refusal,
    },
    /// Another controller holds the lease.
    #[error("{holder} steers this fabric (lease {}); stop it, or wait until its lease ends", path.display())]
    Held {
        /// The holder of the lease.
        holder: String,
        /// The lease's file.
        path: PathBuf,
    },
    /// A later leader of the controllers steers.
    #[error(
        "router {router:?}: a controller of term {term} steers this fabric, and this one's term is over"
    )]
    Superseded {
        /// The router.
        router: String,
        /// The greatest term that the router has seen.
        term: String,
    },
    /// This controller does not lead, or its term is over.
    #[error("this controller does not lead the controllers of its fabric")]
    NoTerm,
    /// An order waited until the lease under which it was given was lost.
    #[error("the order is from before this controller lost the lease, and is not carried out")]
    Outdated,
    /// The settings of etcd cannot be used.
    #[error("cluster.etcd: {0}")]
    Etcd(#[from] Box<weft_etcd::EtcdError>),
    /// Other controllers would send clients to an address that no host has.
    #[error(
        "set `url` of [cluster], such as \"https://10.9.0.1:7490\": other controllers would send clients to {0}, which is no host"
    )]
    NoUrl(String),
    /// An error of the operating system.
    #[error("cannot {what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The caller's function that reads the inventory failed.
    #[error(transparent)]
    Inventory(Box<dyn std::error::Error + Send + Sync>),
    /// A configuration names a lab, and the program that uses it does not read labs.
    #[error("`lab = {lab:?}`: this program steers the routers of [[router]] only")]
    UnreadLab {
        /// The lab.
        lab: String,
    },
    /// Settings of probes beyond their limits.
    #[error(transparent)]
    ProbePlan(#[from] ProbePlanError),
    /// Tables that do not form a fabric.
    #[error(transparent)]
    Installed(#[from] weft_route::InstalledError),
}

impl SteerError {
    /// Returns a function for `map_err` that adds the failed operation.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// An invalid configuration or inventory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is no TOML, or has a key or value that is not allowed.
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    /// A router of the inventory is invalid.
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    /// The configuration names a lab and lists routers.
    #[error("`lab` and [[router]] exclude each other")]
    LabAndRouters,
    /// The interface's name is invalid.
    #[error("interface is {0:?}, which is no interface name")]
    Interface(String),
    /// The management address is unspecified.
    #[error("management is {0}, which is no address of this host")]
    Management(IpAddr),
    /// An interval is too short.
    #[error("{name} is {span}; it must be at least 100ms")]
    TooShort {
        /// The key.
        name: &'static str,
        /// Its value.
        span: Duration,
    },
    /// The settings of etcd are invalid.
    #[error("cluster.etcd: {0}")]
    Etcd(String),
    /// The members of etcd are missing, or in the wrong table.
    #[error(
        "{0}[cluster] needs the members of etcd: [cluster.etcd] endpoints = [\"10.9.0.2:2379\"]"
    )]
    ClusterEtcd(Box<toml::de::Error>),
    /// The name of the controllers' fabric is invalid.
    #[error("cluster.name is {0:?}; it has 1 to 64 letters, digits and -_.")]
    ClusterName(String),
    /// The time after which a leader is replaced is out of range.
    #[error("cluster.ttl is {0}; it is a number of whole seconds from 2s to 60s")]
    ClusterTtl(Duration),
    /// The URL of the page is invalid.
    #[error(
        "cluster.url is {0:?}; it is http://HOST:PORT or https://HOST:PORT of this controller's page, as clients reach it"
    )]
    ClusterUrl(String),
    /// The state has two places.
    #[error("`state` and `cluster` exclude each other: decisions are in etcd")]
    ClusterAndState,
    /// The lease is too short.
    #[error("lease is {0}; it must be at least 3s, because routers count in seconds")]
    Lease(Duration),
}

/// An invalid inventory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InventoryError {
    /// It has no routers.
    #[error("no [[router]]: there is nothing to steer")]
    NoRouter,
    /// Two routers have one name.
    #[error("router {0:?} occurs twice")]
    RouterTwice(String),
    /// A router's name is invalid.
    #[error("router {0:?}: a name has only letters, digits and -_.")]
    RouterName(String),
    /// Two routers have one agent.
    #[error("router {router:?}: another router also has the agent {agent}")]
    Agent {
        /// The router.
        router: String,
        /// The agent's address.
        agent: IpAddr,
    },
    /// A source of an agent's datagrams is no host's address.
    #[error("router {router:?}: no host sends from its source {source_address}")]
    Source {
        /// The router.
        router: String,
        /// The address.
        source_address: IpAddr,
    },
    /// Two ports of a router have one name.
    #[error("router {router:?}: port {port:?} occurs twice")]
    Port {
        /// The router.
        router: String,
        /// The port's name.
        port: String,
    },
    /// The settings of a gNMI server are invalid.
    #[error("router {router:?}: apply.gnmi: {fault}")]
    Gnmi {
        /// The router.
        router: String,
        /// The fault.
        fault: GnmiSettingsError,
    },
    /// A port's name is invalid.
    #[error("router {router:?}: {port:?} is no interface name")]
    Interface {
        /// The router.
        router: String,
        /// The port's name.
        port: String,
    },
}
