//! The network of multi-rail blocks (Astral, introduction and figure 1).

use alloc::vec::Vec;

use weft_units::{BitRate, Duration};

use super::{BuildError, LINK_LATENCY, at_least_one, gbps, product};
use crate::graph::{NodeId, Topology, TopologyBuilder};

/// Blocks of servers whose NICs of the same number share a leaf; spines connect all leaves. A
/// simulated *host* is one NIC with two ports.
///
/// The paper gives 128-port switches, blocks of 32 servers with 8 NICs of 400 Gb/s, NICs with two
/// ports on two leaves, and full connection of leaves by spines. That fixes the rest: a block's 512
/// ports of 200 Gb/s fill the lower 64 ports of 8 leaves, one leaf for each rail. The paper does not
/// give a NIC's second leaf; here leaves form pairs, and NIC `r` has port 0 on leaf `r` and port 1 on
/// leaf `r ^ 1`. The upper 64 ports go to 64 spines, so a fabric has at most 16 blocks.
///
/// A destination is reached through both its leaves, so unlike in HPN's planes a packet may arrive on
/// either port: `spines` · 2 paths for each port of the sender, fewer if they share a leaf.
///
/// Nodes: hosts by block, server, NIC (see [`Self::host`]); leaves by block and rail; spines.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Rail {
    /// Number of blocks.
    pub blocks: u32,
    /// Number of servers in each block.
    pub servers_per_block: u32,
    /// Number of NICs of each server, one for each rail; even.
    pub rails: u32,
    /// Number of spines, each with one cable to each leaf.
    pub spines: u32,
    /// Rate of each NIC port.
    pub port_rate: BitRate,
    /// Rate of each cable between a leaf and a spine.
    pub uplink_rate: BitRate,
    /// Latency of every cable.
    pub propagation: Duration,
}

impl Default for Rail {
    fn default() -> Self {
        Self {
            blocks: 2,
            servers_per_block: 32,
            rails: 8,
            spines: 64,
            port_rate: gbps(200),
            uplink_rate: gbps(200),
            propagation: LINK_LATENCY,
        }
    }
}

impl Rail {
    /// Returns the NIC of one rail of one server.
    pub const fn host(&self, block: u32, server: u32, rail: u32) -> NodeId {
        NodeId((block * self.servers_per_block + server) * self.rails + rail)
    }

    /// Builds the network.
    ///
    /// # Errors
    /// Returns `Zero` if a count is zero, `OutOfRange` if `rails` is odd, `Topology` if the network
    /// is too large.
    pub fn build(&self) -> Result<Topology, BuildError> {
        at_least_one(&[
            ("blocks", self.blocks),
            ("servers_per_block", self.servers_per_block),
            ("rails", self.rails),
            ("spines", self.spines),
        ])?;
        if self.rails % 2 == 1 {
            let (parameter, got) = ("rails", self.rails.into());
            return Err(BuildError::OutOfRange { parameter, got, expected: "an even number" });
        }
        let hosts = product(&[self.blocks, self.servers_per_block, self.rails])?;
        let mut network = TopologyBuilder::new(hosts)?;
        let leaves: Vec<_> = network.add_switches(product(&[self.blocks, self.rails])?)?.collect();
        let spines = network.add_switches(self.spines)?;
        for host in 0..hosts {
            let block = host / (self.servers_per_block * self.rails);
            let leaf = block * self.rails + host % self.rails;
            for leaf in [leaf, leaf ^ 1] {
                let leaf = leaves[leaf as usize];
                network.connect(NodeId(host), leaf, self.port_rate, self.propagation)?;
            }
        }
        for leaf in leaves {
            for spine in spines.clone() {
                network.connect(leaf, spine, self.uplink_rate, self.propagation)?;
            }
        }
        Ok(network.build()?)
    }
}
