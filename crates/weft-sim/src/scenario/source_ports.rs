//! The key `source_ports` of the section `[host]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The source ports of connections, which select their paths where switches hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SourcePorts {
    /// Each connection draws its own.
    #[default]
    Random,
    /// All connections of a host send path `p` from one port, and connections to one peer share the state of its
    /// paths, as on real hosts. Requires that `bond` is off.
    Shared,
    /// Connections that workloads open at their start use planned ports, whose paths share as few links as possible
    /// (`weft plan ports`); later ones draw theirs.
    Planned,
    /// Each connection draws its ports so that its paths take different routes through the network, each route once
    /// before any a second time: Hopper's testbed profiled its ports for this (section 3.2).
    Distinct,
}
