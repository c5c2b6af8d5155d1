//! Orders to nodes: `weft adm` sends them to this host's nodes, or to other hosts' agents for theirs.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use weft_stat::{Request, Setting, ask};

use crate::stat::{Host, NodeView};

/// The nodes that an order is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Which {
    /// All nodes.
    All,
    /// The nodes with one of these names: a program's, a process's number, a file's.
    Called(Vec<String>),
}

/// An order, and the nodes that it is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) which: Which,
    pub(crate) ask: Request,
}

/// The result of an order at one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The host, if it is another one.
    pub(crate) host: Option<String>,
    pub(crate) program: String,
    pub(crate) pid: u64,
    /// The parameters after the order.
    pub(crate) settings: Vec<Setting>,
    /// The reason why the node refused it.
    pub(crate) error: Option<String>,
}

impl Which {
    /// Returns `true` if the order is for this node.
    fn selects(&self, node: &NodeView) -> bool {
        match self {
            Self::All => true,
            Self::Called(names) => names.iter().any(|name| node.is_called(name)),
        }
    }
}

/// Sends the order to this host's nodes, one after the other.
///
/// # Errors
/// Returns an error if the nodes' folder cannot be read. A node's refusal is in its outcome.
pub(crate) fn carry_out(folder: Option<&Path>, order: &Order) -> Result<Vec<Outcome>> {
    let host = Host::read(folder)?;
    let selected = host.nodes.iter().filter(|node| !node.is_dead && order.which.selects(node));
    let outcomes = selected.map(|node| {
        let (settings, error) = match ask(&node.control, &order.ask) {
            Ok(settings) => (settings, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let (program, pid) = (node.program.name.to_string(), node.program.pid);
        Outcome { host: None, program, pid, settings, error }
    });
    Ok(outcomes.collect())
}
