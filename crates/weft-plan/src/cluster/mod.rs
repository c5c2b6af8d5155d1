//! A cluster: servers of one kind, and the network between their NICs.
//!
//! NIC `r` of every server is on *rail* `r`. Servers connected below the spines form a *block* (Astral,
//! introduction: 32 servers whose NICs of one number share a leaf).

mod build;
#[cfg(feature = "serde")]
mod config;
mod levels;

use alloc::string::String;
use alloc::vec::Vec;

pub use build::{ClusterError, Network};
#[cfg(feature = "serde")]
pub use config::{ClusterConfig, HashConfig, ServerConfig, SwitchConfig};
use weft_topo::{NodeId, Topology};

use crate::machine::Machine;

/// A server's index in [`Cluster::servers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u32);

impl ServerId {
    /// Returns the index in an array with one entry for each server.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The server's host name.
    pub name: String,
    /// The topology's host for each NIC, by rail; empty if the cluster has no network.
    pub nics: Vec<NodeId>,
}

/// Servers and the network between them. Servers are in rank order, as in their file.
#[derive(Clone, Debug)]
pub struct Cluster {
    machine: Machine,
    servers: Vec<Server>,
    network: Option<Network>,
    /// `levels[t][server]`: the set of servers that are connected over switches of tier `t + 1` and below.
    levels: Vec<Vec<u32>>,
}

impl Cluster {
    /// Returns the devices and links inside each server.
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Returns all servers, in rank order.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Returns the identifier of every server, in rank order.
    pub fn server_ids(&self) -> impl Iterator<Item = ServerId> + use<> {
        (0..u32::try_from(self.servers.len()).expect("a cluster has fewer than 2^20 servers"))
            .map(ServerId)
    }

    /// Returns the network between NICs; `None` if the file has only blocks.
    pub const fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// Returns the number of rails: NICs of each server that carry collectives.
    pub fn rails(&self) -> usize {
        self.machine.nics().len()
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> usize {
        self.levels[0].iter().max().map_or(0, |&last| last as usize + 1)
    }

    /// Returns the block of a server.
    ///
    /// # Panics
    /// If the cluster has no such server.
    pub fn block(&self, server: ServerId) -> u32 {
        self.levels[0][server.index()]
    }

    /// Returns the numbers of the sets that contain a server, from the widest set down to its block. Servers
    /// with a long common prefix are near each other.
    ///
    /// # Panics
    /// If the cluster has no such server.
    pub fn place(&self, server: ServerId) -> Vec<u32> {
        self.levels.iter().rev().map(|level| level[server.index()]).collect()
    }

    /// Returns the server with this host name.
    pub fn find(&self, name: &str) -> Option<ServerId> {
        self.server_ids().find(|id| self.servers[id.index()].name == name)
    }

    /// Returns `true` if traffic from one NIC to the other passes one leaf only. Without a network it returns
    /// `true` if both NICs are on one rail of one block.
    ///
    /// # Panics
    /// If the cluster has no such server or rail.
    pub fn share_leaf(&self, a: (ServerId, usize), b: (ServerId, usize)) -> bool {
        let Some(network) = &self.network else {
            return self.block(a.0) == self.block(b.0) && a.1 == b.1;
        };
        let leaves = |(server, rail): (ServerId, usize)| {
            leaves(&network.topology, self.servers[server.index()].nics[rail])
        };
        leaves(a).any(|leaf| leaves(b).any(|other| other == leaf))
    }
}

fn leaves(topology: &Topology, host: NodeId) -> impl Iterator<Item = NodeId> + '_ {
    topology.ports(host).iter().map(|&port| topology.link(port).to)
}

#[cfg(all(test, feature = "serde"))]
mod tests;
