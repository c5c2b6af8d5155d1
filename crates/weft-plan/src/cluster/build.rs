//! Making a [`Cluster`] from a machine, servers and a network.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use weft_topo::build::BuildError;
use weft_topo::hash::SwitchHash;
use weft_topo::{LinkId, NodeId, Topology, TopologyError};

use super::levels::levels;
use super::{Cluster, Server};
use crate::machine::{Machine, MachineError};

/// The network between the NICs, and how its switches choose.
#[derive(Clone, Debug)]
pub struct Network {
    /// Its hosts are NICs.
    pub topology: Topology,
    /// The hash of each switch, by its number less the number of hosts.
    pub hashes: Vec<SwitchHash>,
    /// IPv4 address of each host, in the host's integers.
    pub addresses: Vec<u32>,
    /// Weights of links in their equal-cost groups, where they are not 1.
    pub weights: BTreeMap<LinkId, u32>,
    /// What switches are called, by number less the number of hosts; empty for their numbers.
    pub names: Vec<String>,
}

impl Network {
    /// What people call a node.
    pub fn name(&self, node: NodeId) -> String {
        let named = node.index().checked_sub(self.topology.hosts() as usize);
        match named.and_then(|switch| self.names.get(switch)) {
            Some(name) => name.clone(),
            None => format!("{}", self.topology.name(node)),
        }
    }
}

/// Why a description is no cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The inside of a server.
    #[error("machine: {0}")]
    Machine(#[from] MachineError),
    /// A shape's parameters.
    #[error("network: {0}")]
    Shape(#[from] BuildError),
    /// Switches and servers do not make a network.
    #[error("network: {0}")]
    Topology(#[from] TopologyError),
    /// No server at all.
    #[error("there is no server: give a [network] shape, or [[server]] entries")]
    NoServers,
    /// A name nobody has.
    #[error("{0}")]
    Unknown(String),
    /// A name that two have.
    #[error("{what} {name:?} is there twice")]
    Twice {
        /// `server`, `switch` or `address`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Switches are above each other.
    #[error("the switches {} are above each other in a cycle; up leads to the next tier", cycle.join(" -> "))]
    Cycle {
        /// Names along the cycle; the first is also the last.
        cycle: Vec<String>,
    },
    /// Something does not fit together.
    #[error("{what}: {problem}")]
    Mismatch {
        /// Which part of the description.
        what: String,
        /// What does not fit, and what would.
        problem: String,
    },
}

impl Cluster {
    /// Servers on a network. Each server's NICs are hosts of the topology, one for each rail.
    ///
    /// # Errors
    /// `NoServers`, `Twice`, or `Mismatch` where a server has not as many NICs as the machine.
    pub fn on_network(
        machine: Machine,
        servers: Vec<Server>,
        network: Network,
    ) -> Result<Self, ClusterError> {
        let rails = machine.nics().len();
        check_names(&servers)?;
        for server in &servers {
            let got = server.nics.len();
            if got != rails {
                let what = format!("server {:?}", server.name);
                let problem = format!("has {got} NICs on the network, its machine {rails}");
                return Err(ClusterError::Mismatch { what, problem });
            }
        }
        let mut seen = BTreeSet::new();
        for &address in &network.addresses {
            if !seen.insert(address) {
                let name = format!("{}", core::net::Ipv4Addr::from(address));
                return Err(ClusterError::Twice { what: "address", name });
            }
        }
        let levels = levels(&network.topology, &servers);
        Ok(Self { machine, servers, network: Some(network), levels })
    }

    /// Servers of which only the blocks are known: enough to order them, not to plan ports.
    ///
    /// # Errors
    /// `NoServers`, `Twice`.
    pub fn in_blocks(
        machine: Machine,
        servers: Vec<(String, String)>,
    ) -> Result<Self, ClusterError> {
        let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
        let mut next = 0;
        let mut level = Vec::new();
        let mut named = Vec::new();
        for (name, block) in servers {
            let number = *numbers.entry(block).or_insert_with(|| {
                next += 1;
                next - 1
            });
            level.push(number);
            named.push(Server { name, nics: Vec::new() });
        }
        check_names(&named)?;
        Ok(Self { machine, servers: named, network: None, levels: alloc::vec![level] })
    }
}

fn check_names(servers: &[Server]) -> Result<(), ClusterError> {
    if servers.is_empty() {
        return Err(ClusterError::NoServers);
    }
    let mut names = BTreeSet::new();
    match servers.iter().find(|server| !names.insert(server.name.as_str())) {
        Some(twice) => Err(ClusterError::Twice { what: "server", name: twice.name.clone() }),
        None => Ok(()),
    }
}
