//! A cluster: equal servers, and the network between their NICs.
//!
//! NIC `r` of every server is on *rail* `r`. Servers that reach each other below the spines are a
//! *block* (Astral, introduction: 32 servers whose NICs of one number share a leaf).

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

/// A server by its place in [`Cluster::servers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u32);

impl ServerId {
    /// The place in an array with one entry a server.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its host name.
    pub name: String,
    /// The network's host that each NIC is, by rail; empty where no network is known.
    pub nics: Vec<NodeId>,
}

/// Servers and the network between them. Servers are in rank order as their file has them.
#[derive(Clone, Debug)]
pub struct Cluster {
    machine: Machine,
    servers: Vec<Server>,
    network: Option<Network>,
    /// `levels[t][server]`: which set of servers it hangs together with over switches of tier
    /// `t + 1` and below.
    levels: Vec<Vec<u32>>,
}

impl Cluster {
    /// What each server has inside.
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Every server.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Every server, by number.
    pub fn server_ids(&self) -> impl Iterator<Item = ServerId> + use<> {
        (0..u32::try_from(self.servers.len()).expect("a cluster has fewer than 2^20 servers"))
            .map(ServerId)
    }

    /// The network between NICs, where the file says more than blocks.
    pub const fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// How many NICs of each server make rails.
    pub fn rails(&self) -> usize {
        self.machine.nics().len()
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.levels[0].iter().max().map_or(0, |&last| last as usize + 1)
    }

    /// The block of a server.
    ///
    /// # Panics
    /// If there is no such server.
    pub fn block(&self, server: ServerId) -> u32 {
        self.levels[0][server.index()]
    }

    /// Where a server is, from the widest set it shares switches in to its block: servers that
    /// compare nearly equal are near.
    ///
    /// # Panics
    /// If there is no such server.
    pub fn place(&self, server: ServerId) -> Vec<u32> {
        self.levels.iter().rev().map(|level| level[server.index()]).collect()
    }

    /// The server of that name.
    pub fn find(&self, name: &str) -> Option<ServerId> {
        self.server_ids().find(|id| self.servers[id.index()].name == name)
    }

    /// Whether traffic from one NIC to another passes a leaf only. Without a network, where
    /// both are on one rail of one block.
    ///
    /// # Panics
    /// If there is no such server or rail.
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
