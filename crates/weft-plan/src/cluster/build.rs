//! Construction of a [`Cluster`] from a machine, servers and a network.

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

/// The network between the NICs, with its switches' hashes.
#[derive(Clone, Debug)]
pub struct Network {
    /// The topology, whose hosts are NICs.
    pub topology: Topology,
    /// The hash of each switch, indexed by its node number minus the number of hosts.
    pub hashes: Vec<SwitchHash>,
    /// The IPv4 address of each host, in host byte order.
    pub addresses: Vec<u32>,
    /// Weights of links in their equal-cost groups, where they are not 1.
    pub weights: BTreeMap<LinkId, u32>,
    /// Switch names, indexed by node number minus the number of hosts; if empty, switches are named by their numbers.
    pub names: Vec<String>,
}

impl Network {
    /// Returns the display name of a node.
    pub fn name(&self, node: NodeId) -> String {
        let named = node.index().checked_sub(self.topology.hosts() as usize);
        match named.and_then(|switch| self.names.get(switch)) {
            Some(name) => name.clone(),
            None => format!("{}", self.topology.name(node)),
        }
    }
}

/// An error in the description of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The machine is invalid.
    #[error("machine: {0}")]
    Machine(#[from] MachineError),
    /// A shape's parameters are invalid.
    #[error("network: {0}")]
    Shape(#[from] BuildError),
    /// Switches and servers do not form a valid topology.
    #[error("network: {0}")]
    Topology(#[from] TopologyError),
    /// The description has no server.
    #[error("there is no server: give a [network] shape, or [[server]] entries")]
    NoServers,
    /// A name does not exist.
    #[error("{0}")]
    Unknown(String),
    /// A name or address occurs twice.
    #[error("{what} {name:?} is there twice")]
    Twice {
        /// `server`, `switch` or `address`.
        what: &'static str,
        /// The name or address.
        name: String,
    },
    /// The `up` links of switches form a cycle.
    #[error("the switches {} are above each other in a cycle; up leads to the next tier", cycle.join(" -> "))]
    Cycle {
        /// Names along the cycle; the first is also the last.
        cycle: Vec<String>,
    },
    /// Two parts of the description contradict each other.
    #[error("{what}: {problem}")]
    Mismatch {
        /// The part of the description.
        what: String,
        /// The contradiction, with the expected value.
        problem: String,
    },
}

impl Cluster {
    /// Returns a cluster of servers on a network. Each server's NICs are hosts of the topology, one for each rail.
    ///
    /// # Errors
    /// Returns `NoServers`, `Twice`, or `Mismatch` if a server's number of NICs differs from the machine's.
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

    /// Returns a cluster of servers whose blocks alone are known. That suffices to order servers, not to plan ports.
    ///
    /// # Errors
    /// Returns `NoServers` or `Twice`.
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
