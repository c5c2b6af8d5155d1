//! Orders to nodes: what `weft adm` asks of this host's, and has other hosts' agents ask of theirs.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use weft_stat::{Ask, Setting, ask};

use crate::stat::{Host, NodeView};

/// Which nodes are meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Which {
    /// Every one.
    All,
    /// Those that go by one of these names: a program's, a process's number, a file's.
    Called(Vec<String>),
}

/// What is asked of whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) which: Which,
    pub(crate) ask: Ask,
}

/// What became of an order at one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The host, where it is another.
    pub(crate) host: Option<String>,
    pub(crate) program: String,
    pub(crate) pid: u64,
    /// The parameters as they are now.
    pub(crate) settings: Vec<Setting>,
    /// Why not.
    pub(crate) error: Option<String>,
}

impl Which {
    fn means(&self, node: &NodeView) -> bool {
        match self {
            Self::All => true,
            Self::Called(names) => names.iter().any(|name| node.is_called(name)),
        }
    }
}

/// Asks this host's nodes, one after the other.
///
/// # Errors
/// The folder they are in cannot be read. What a node refuses is in its outcome.
pub(crate) fn carry_out(folder: Option<&Path>, order: &Order) -> Result<Vec<Outcome>> {
    let host = Host::look(folder)?;
    let meant = host.nodes.iter().filter(|node| !node.is_dead && order.which.means(node));
    let outcomes = meant.map(|node| {
        let (settings, error) = match ask(&node.control, &order.ask) {
            Ok(settings) => (settings, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let (program, pid) = (node.program.name.to_string(), node.program.pid);
        Outcome { host: None, program, pid, settings, error }
    });
    Ok(outcomes.collect())
}
