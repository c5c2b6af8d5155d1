//! The traffic between hosts.
//!
//! A workload opens channels, sends messages, and is notified of their completion; see [`Workload`]. The world calls
//! it; it never knows of packets or paths. Scenario files name the rows of the registry.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::{NodeId, Topology};
use weft_units::Seed;

use crate::fast_forward::{Advance, Criterion, Cycle, EqualParts, Grain, Refusal};
use crate::time::SimSpan;
use crate::traffic::Notice;
use crate::world::Session;

mod all_to_all;
mod background;
mod collective_mix;
mod flow_list;
mod flows;
mod graph;
mod hosts;
mod incast;
mod iteration;
mod pairs;
mod parallel_training;
mod permutation;
mod poisson;
mod ring_all_reduce;
mod rings;
mod rounds;
pub mod sizes;
mod streams;
mod training;
mod writes;

pub use all_to_all::Config as AllToAll;
pub use background::Config as Background;
pub use collective_mix::{Config as CollectiveMix, Mix};
pub use flow_list::{Config as FlowList, parse_flow_list, read_flow_list};
pub use flows::{Connections, Flow, Flows};
pub use graph::{AllReduce, Config as GraphFile};
pub use hosts::{HostSet, ParseHostsError};
pub use incast::Config as Incast;
pub use iteration::{Iteration, Shares};
pub use pairs::Config as Pairs;
pub use parallel_training::{
    Config as ParallelTraining, Load, Model, Placement, ServerConfig, Sharding,
};
pub use permutation::Config as Permutation;
pub use poisson::{Config as Poisson, LoadOf};
pub use ring_all_reduce::{Config as RingAllReduce, RingOrder};
pub use rings::Grouping;
pub use rounds::Config as Rounds;
pub use training::{Collective, Config as Training};
pub use writes::Config as Writes;

/// A source of traffic: decides what hosts send, and reacts to deliveries.
pub trait Workload: Debug + Send {
    /// Starts the workload at the start of the run.
    fn start(&mut self, session: &mut Session<'_>);

    /// Handles an event that the workload waited for.
    fn on_notice(&mut self, notice: &Notice, session: &mut Session<'_>);

    /// Returns `true` if the workload waits for nothing more.
    fn is_done(&self) -> bool;

    /// Returns `true` if it may open channels in answer to a notice at one host. Without a handshake, such a channel
    /// changes a second host at once, so the run takes one thread.
    fn opens_during_run(&self) -> bool {
        true
    }

    /// Returns `true` if it acts at a host only when it is woken or a message of that host is acknowledged: it takes note
    /// of deliveries and of the ends of channels, and does nothing. Several threads then need not wait for it.
    fn acts_only_when_acknowledged(&self) -> bool {
        false
    }

    /// Returns the completed collective operations, oldest first.
    fn iterations(&self) -> &[Iteration] {
        &[]
    }

    /// Returns the parts that repeat now, with units of a grain; `None` for a part that waits for another. See
    /// [`fast_forward`](crate::fast_forward).
    ///
    /// # Errors
    /// The reason why no unit may be skipped.
    fn cycles(&self, _grain: Grain, _criterion: &Criterion) -> Result<Vec<Option<Cycle>>, Refusal> {
        Err(Refusal::NoUnits)
    }

    /// Returns the parts of which one is simulated for all, if the run may skip.
    ///
    /// # Errors
    /// The reason why all of it is simulated.
    fn equal_parts(&self) -> Result<EqualParts, Refusal> {
        Err(Refusal::NoEqualParts)
    }

    /// Advances by `span` and by these units of the cycles that [`Self::cycles`] has just returned for the grain. The
    /// session's time is that after the skip. Returns the payload that will not be sent because of it, bytes.
    fn skip(
        &mut self,
        _grain: Grain,
        _parts: &[Option<Advance>],
        _span: SimSpan,
        _session: &mut Session<'_>,
    ) -> u64 {
        0
    }
}

/// The reason why a workload does not fit a topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A host that does not exist.
    #[error("host {got} does not exist; hosts are 0..{hosts}")]
    NoSuchHost {
        /// The host that was named.
        got: u32,
        /// Number of hosts.
        hosts: u32,
    },
    /// A host that was named more than once.
    #[error("host {host} is named twice")]
    DuplicateHost {
        /// The host.
        host: u32,
    },
    /// Fewer hosts than the workload needs.
    #[error("{got} hosts are too few, expected at least {min}")]
    TooFewHosts {
        /// Number of hosts that were named.
        got: usize,
        /// Least number of hosts.
        min: u32,
    },
    /// A size that no message can have.
    #[error("{key} is {got} bytes, expected 1 to {max}")]
    Size {
        /// The setting's key.
        key: &'static str,
        /// The setting's value, bytes.
        got: u64,
        /// The largest valid value, bytes.
        max: u64,
    },
    /// A number that is out of range.
    #[error("{key} is {got}, expected {expected}")]
    OutOfRange {
        /// The setting's key.
        key: &'static str,
        /// The setting's value.
        got: String,
        /// The valid range.
        expected: &'static str,
    },
    /// A file that cannot be read.
    #[error("{}: {reason}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file of another simulator that cannot be read.
    #[error(transparent)]
    Import(#[from] crate::import::ImportError),
    /// A malformed line of a file.
    #[error("{}:{line}: expected {expected}, found {found:?}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// The line's number, counting from one.
        line: usize,
        /// The expected content.
        expected: String,
        /// The content found.
        found: String,
    },
}

impl WorkloadError {
    /// Returns the invalid setting's key, if the error is about a single setting.
    pub const fn key(&self) -> Option<&'static str> {
        match self {
            Self::Size { key, .. } | Self::OutOfRange { key, .. } => Some(key),
            _ => None,
        }
    }
}

/// The inputs of a workload besides its own settings.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The topology it runs on.
    pub topology: &'a Topology,
    /// The seed of its random draws.
    pub seed: Seed,
    /// The folder that file names are relative to.
    pub folder: &'a Path,
}

/// A constructor of workloads: the settings in a scenario file.
pub trait WorkloadBuilder {
    /// Returns the workload for this setting.
    ///
    /// # Errors
    /// The workload does not fit the topology, or one of its files is invalid.
    fn build(&self, setting: &Setting<'_>) -> Result<Box<dyn Workload>, WorkloadError>;

    /// Checks the settings that do not depend on the topology.
    ///
    /// # Errors
    /// A number is out of its range.
    fn check(&self) -> Result<(), WorkloadError> {
        Ok(())
    }
}

/// Declares every workload once: module, name, one-line description.
macro_rules! workloads {
    ($($kind:ident => $module:ident, $name:literal, $about:literal;)+) => {
        weft_units::registry! {
            /// The name of a workload.
            #[non_exhaustive]
            pub enum Kind: "workload" { $($kind => $name, $about;)+ }
        }

        /// A workload with its settings; in a file, `kind` names it.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "kind")]
        #[non_exhaustive]
        pub enum WorkloadConfig {
            $(#[doc = $about] #[serde(rename = $name)] $kind($module::Config)),+
        }

        impl WorkloadConfig {
            /// Returns the workload's name.
            pub const fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind),+ }
            }
        }

        impl WorkloadBuilder for WorkloadConfig {
            fn build(&self, setting: &Setting<'_>) -> Result<Box<dyn Workload>, WorkloadError> {
                match self { $(Self::$kind(config) => config.build(setting)),+ }
            }

            fn check(&self) -> Result<(), WorkloadError> {
                match self { $(Self::$kind(config) => config.check()),+ }
            }
        }
    };
}

workloads! {
    Permutation => permutation, "permutation", "a flow from each host to another; each host receives one";
    Pairs => pairs, "pairs", "several connections between chosen hosts";
    Writes => writes, "writes", "connections between chosen hosts, each with messages one behind the other";
    Incast => incast, "incast", "many hosts send to one at the same time";
    AllToAll => all_to_all, "all-to-all", "every host of a group sends to every other, once or again and again";
    RingAllReduce => ring_all_reduce, "ring-all-reduce", "2(N-1) steps around a ring, each waiting for the one before";
    Training => training, "training", "rounds of computing and collectives, with a barrier after each";
    ParallelTraining => parallel_training, "parallel-training", "iterations of a model split by tensor, pipeline, data and expert parallelism";
    Rounds => rounds, "rounds", "chosen pairs exchange flows, round after round, with a barrier after each";
    CollectiveMix => collective_mix, "collective-mix", "groups that all-reduce, all-gather and reduce-scatter at random times, of random sizes";
    Background => background, "background", "steady or bursty load between random pairs, for as long as the run lasts";
    Poisson => poisson, "poisson", "flows at random times between random hosts, at a given load, of sizes from a distribution";
    FlowList => flow_list, "flow-list", "replays a file of flows (.cm of htsim, or ns-3's; plain or .gz)";
    Graph => graph, "graph", "runs a file's graph of messages, computation and collectives (Chakra, GOAL, SimAI, htsim)";
}

/// Returns the size of one message from a setting, bytes.
fn message_size(key: &'static str, size: weft_units::ByteCount) -> Result<u32, WorkloadError> {
    let max = u64::from(u32::MAX);
    let got = size.0;
    u32::try_from(got).ok().filter(|&bytes| bytes > 0).ok_or(WorkloadError::Size { key, got, max })
}

/// Returns the source and destination, two different hosts of `hosts`.
fn checked_pair(pair: [u32; 2], hosts: u32) -> Result<(NodeId, NodeId), WorkloadError> {
    let [source, destination] = pair;
    if let Some(&got) = pair.iter().find(|&&host| host >= hosts) {
        return Err(WorkloadError::NoSuchHost { got, hosts });
    }
    if source == destination {
        return Err(WorkloadError::DuplicateHost { host: source });
    }
    Ok((NodeId(source), NodeId(destination)))
}

/// Checks that a number is not zero.
fn at_least_one(key: &'static str, value: u32) -> Result<u32, WorkloadError> {
    let (got, expected) = (value.to_string(), "at least 1");
    if value > 0 { Ok(value) } else { Err(WorkloadError::OutOfRange { key, got, expected }) }
}

/// Checks that a number of slices of a message, or of connections between two ranks, is 1 to 64.
fn one_to_64(key: &'static str, value: u32) -> Result<u32, WorkloadError> {
    let (got, expected) = (value.to_string(), "1 to 64");
    let fits = (1..=64).contains(&value);
    if fits { Ok(value) } else { Err(WorkloadError::OutOfRange { key, got, expected }) }
}

/// Returns each host of a random ring with its successor: a permutation in which no host sends to itself.
fn random_ring(mut hosts: Vec<NodeId>, seed: Seed) -> Vec<(NodeId, NodeId)> {
    seed.rng().shuffle(&mut hosts);
    let next = hosts.iter().copied().cycle().skip(1);
    hosts.iter().copied().zip(next).collect()
}
