//! The k-ary fat tree (Al-Fares, Loukissas and Vahdat 2008), in two or three tiers.

use alloc::vec::Vec;

use weft_units::{BitRate, Duration};

use super::{BuildError, LINK_LATENCY, at_least_one, gbps};
use crate::graph::{NodeId, Topology, TopologyBuilder, TopologyError, narrow};

/// A fat tree with the smallest even `k` that has room for `hosts` hosts:
///
/// | tiers | max. hosts | edge switches | aggregation | core | shortest paths between pods |
/// | --- | --- | --- | --- | --- | --- |
/// | 2 | `k²/2 · o` | `k` | – | `k/2` | `k/2` (between edges) |
/// | 3 | `k³/4 · o` | `k²/2` | `k²/2` | `k²/4` | `k²/4` |
///
/// where `o` is the oversubscription: each edge switch has `k/2` uplinks and `o · k/2` hosts. The
/// default is the tree that uet-htsim builds for 128 hosts (`k` = 8); 1,024 hosts give `k` = 16, and
/// 8,192 in two tiers give `k` = 128: edge switches with 64 ports down and 64 up. (htsim rejects a
/// number of hosts that does not fill the tree; here the last pods are omitted or partly empty.)
///
/// Nodes: hosts by edge switch, edge switches by pod, aggregation switches by pod, core switches
/// (in two tiers: hosts, edges, spines). Aggregation switch `a` of every pod connects to the core
/// switches `a·k/2 .. (a+1)·k/2`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct FatTree {
    /// Number of hosts, one port each.
    pub hosts: u32,
    /// Number of tiers, 2 or 3.
    pub tiers: u32,
    /// Ratio of an edge switch's hosts to its uplinks; 1 is a full bisection.
    pub oversubscription: u32,
    /// Rate of every cable.
    pub rate: BitRate,
    /// Latency of every cable.
    pub propagation: Duration,
    /// Number of cables of the highest tier, from its first switch on, that are slow: those of the first pod's
    /// aggregation switches to the core, with three tiers.
    pub slow_cables: u32,
    /// Rate of the slow cables.
    pub slow_rate: BitRate,
}

impl Default for FatTree {
    fn default() -> Self {
        Self {
            hosts: 128,
            tiers: 3,
            oversubscription: 1,
            rate: gbps(100),
            propagation: LINK_LATENCY,
            slow_cables: 0,
            slow_rate: gbps(25),
        }
    }
}

impl FatTree {
    /// Builds the network.
    ///
    /// # Errors
    /// Returns `Zero` if `hosts` or `oversubscription` is 0, `OutOfRange` unless `tiers` is 2 or 3 and
    /// the highest tier has as many cables as are slow, `Topology` if the network is too large.
    pub fn build(&self) -> Result<Topology, BuildError> {
        at_least_one(&[("hosts", self.hosts), ("oversubscription", self.oversubscription)])?;
        let mut network = TopologyBuilder::new(self.hosts)?;
        match self.tiers {
            2 => self.two_tiers(&mut network)?,
            3 => self.three_tiers(&mut network)?,
            tiers => {
                let (parameter, got) = ("tiers", tiers.into());
                return Err(BuildError::OutOfRange { parameter, got, expected: "2 or 3" });
            }
        }
        Ok(network.build()?)
    }

    /// Returns `k/2`, the number of uplinks of an edge switch.
    fn half(&self) -> u32 {
        let fits = |half: &u64| {
            let hosts_per_edge = half * u64::from(self.oversubscription);
            // k edge switches in two tiers; k pods of k/2 in three.
            let edges = if self.tiers == 2 { 2 * half } else { 2 * half * half };
            hosts_per_edge * edges >= u64::from(self.hosts)
        };
        let half = (1..).find(fits).expect("the capacity grows without bound");
        u32::try_from(half).expect("half of k is at most the number of hosts")
    }

    fn two_tiers(&self, network: &mut TopologyBuilder) -> Result<(), BuildError> {
        let half = self.half();
        let edges = self.attach_hosts(network, half)?;
        let spines = network.add_switches(half)?;
        self.connect_top(
            network,
            edges.into_iter().flat_map(|edge| spines.clone().map(move |spine| (edge, spine))),
        )
    }

    fn three_tiers(&self, network: &mut TopologyBuilder) -> Result<(), BuildError> {
        let half = self.half();
        let edges = self.attach_hosts(network, half)?;
        let pods = edges.len().div_ceil(half as usize);
        let per_pod = half as usize;
        let aggregations: Vec<_> = network.add_switches(narrow(pods) * half)?.collect();
        let cores: Vec<_> = network.add_switches(half * half)?.collect();
        for (edges, aggregations) in edges.chunks(per_pod).zip(aggregations.chunks(per_pod)) {
            for &edge in edges {
                self.connect_all(network, edge, aggregations.iter().copied())?;
            }
        }
        let of_each = aggregations.iter().zip(cores.chunks(per_pod).cycle());
        self.connect_top(
            network,
            of_each.flat_map(|(&aggregation, cores)| {
                cores.iter().map(move |&core| (aggregation, core))
            }),
        )
    }

    /// Adds the edge switches that the hosts need, connects the hosts and returns the switches.
    fn attach_hosts(
        &self,
        network: &mut TopologyBuilder,
        half: u32,
    ) -> Result<Vec<NodeId>, TopologyError> {
        let hosts_per_edge = half.saturating_mul(self.oversubscription);
        let edges: Vec<_> = network.add_switches(self.hosts.div_ceil(hosts_per_edge))?.collect();
        for host in 0..self.hosts {
            let edge = edges[(host / hosts_per_edge) as usize];
            network.connect(NodeId(host), edge, self.rate, self.propagation)?;
        }
        Ok(edges)
    }

    /// Connects the switches of the highest tier, the first of them by slow cables.
    fn connect_top(
        &self,
        network: &mut TopologyBuilder,
        cables: impl Iterator<Item = (NodeId, NodeId)>,
    ) -> Result<(), BuildError> {
        let mut slow = 0..self.slow_cables;
        for (from, to) in cables {
            let rate = if slow.next().is_some() { self.slow_rate } else { self.rate };
            network.connect(from, to, rate, self.propagation)?;
        }
        if slow.is_empty() {
            return Ok(());
        }
        let (parameter, got) = ("slow_cables", self.slow_cables.into());
        Err(BuildError::OutOfRange {
            parameter,
            got,
            expected: "at most the cables of the highest tier",
        })
    }

    fn connect_all(
        &self,
        network: &mut TopologyBuilder,
        from: NodeId,
        to: impl Iterator<Item = NodeId>,
    ) -> Result<(), TopologyError> {
        for to in to {
            network.connect(from, to, self.rate, self.propagation)?;
        }
        Ok(())
    }
}
