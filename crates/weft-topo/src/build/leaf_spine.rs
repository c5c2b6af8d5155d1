//! The leaf–spine fabric: two tiers, every leaf connected to every spine.

use alloc::vec;
use alloc::vec::Vec;

use weft_units::{BitRate, Duration};

use super::{BuildError, LINK_LATENCY, at_least_one, gbps, product};
use crate::graph::{NodeId, Topology, TopologyBuilder};

/// A leaf–spine fabric. The default is Hopper's (section 4.1): 128 servers, 8 leaves, 8 spines,
/// 100 Gb/s and 1 us on every cable, 2:1 oversubscribed.
///
/// Nodes: hosts by leaf (host `h` is on leaf `h / hosts_per_leaf`), leaves, spines.
/// Ports: a leaf's hosts, then its spines in order, parallel cables side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct LeafSpine {
    /// Number of leaves.
    pub leaves: u32,
    /// Number of spines.
    pub spines: u32,
    /// Number of hosts on each leaf, one port each.
    pub hosts_per_leaf: u32,
    /// Number of cables between each leaf and each spine.
    pub parallel_links: u32,
    /// Rate of host cables.
    pub host_rate: BitRate,
    /// Rates of the cables to the spines: one for all spines, or one for each. Hopper's testbed
    /// (section 4.2) has four spines at 10 Gb/s and two at 1 Gb/s.
    pub uplink_rates: Vec<BitRate>,
    /// Latency of every cable.
    pub propagation: Duration,
}

impl Default for LeafSpine {
    fn default() -> Self {
        Self {
            leaves: 8,
            spines: 8,
            hosts_per_leaf: 16,
            parallel_links: 1,
            host_rate: gbps(100),
            uplink_rates: vec![gbps(100)],
            propagation: LINK_LATENCY,
        }
    }
}

impl LeafSpine {
    /// Builds the network.
    ///
    /// # Errors
    /// Returns `Zero` if a count is zero, `RateCount` if the number of uplink rates is neither 1 nor
    /// `spines`, `Topology` if the network is too large.
    pub fn build(&self) -> Result<Topology, BuildError> {
        at_least_one(&[
            ("leaves", self.leaves),
            ("spines", self.spines),
            ("hosts_per_leaf", self.hosts_per_leaf),
            ("parallel_links", self.parallel_links),
        ])?;
        let mut network = TopologyBuilder::new(product(&[self.leaves, self.hosts_per_leaf])?)?;
        let leaves = network.add_switches(self.leaves)?;
        let spines = network.add_switches(self.spines)?;
        let mut hosts = (0..).map(NodeId);
        for leaf in leaves.clone() {
            for host in hosts.by_ref().take(self.hosts_per_leaf as usize) {
                network.connect(host, leaf, self.host_rate, self.propagation)?;
            }
        }
        for leaf in leaves {
            for (spine, rate) in spines.clone().zip(self.rates()?) {
                for _ in 0..self.parallel_links {
                    network.connect(leaf, spine, rate, self.propagation)?;
                }
            }
        }
        Ok(network.build()?)
    }

    /// Returns one rate for each spine, in order.
    fn rates(&self) -> Result<impl Iterator<Item = BitRate> + '_, BuildError> {
        let got = self.uplink_rates.len();
        if got != 1 && got != self.spines as usize {
            let (parameter, expected) = ("uplink_rates", self.spines);
            return Err(BuildError::RateCount { parameter, got, expected });
        }
        Ok(self.uplink_rates.iter().copied().cycle())
    }
}
