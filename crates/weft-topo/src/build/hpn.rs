//! The HPN 7.0 network (Qian et al., SIGCOMM 2024), on which STELLAR's experiments ran.

use alloc::vec::Vec;

use weft_units::{BitRate, Duration};

use super::{BuildError, LINK_LATENCY, at_least_one, gbps, product};
use crate::graph::{NodeId, Topology, TopologyBuilder};

/// A dual-plane, rail-optimised pod. A simulated *host* is one NIC; a server has `rails` NICs, each
/// with one port in each plane.
///
/// Per segment, rail and plane there is one ToR, so a segment's NICs of one rail share their two
/// ToRs. Each ToR has one uplink to each of its plane's aggregation switches, and the planes are not
/// connected: the port on which a packet leaves its host decides its plane, and within a plane there
/// are `aggregations` paths between segments (or rails). The core layer above, which joins pods and
/// connects the planes (STELLAR, section 3.1), is not part of this shape.
///
/// Counts: `segments · servers_per_segment · rails` hosts, `segments · rails · planes` ToRs,
/// `aggregations · planes` aggregation switches. A full pod of HPN 7.0 has 15 segments of 128
/// servers with 8 rails: 15,360 NICs, 240 ToRs of 128 × 200 Gb/s down and 60 × 400 Gb/s up, 120
/// aggregation switches. STELLAR's servers have 8 GPUs and 4 NICs (section 7.2), hence `rails` = 4;
/// its permutation uses 15 of each segment's 128 servers, 30 in total, its 512-GPU task 64 servers.
///
/// Nodes: hosts by segment, server, rail (see [`Self::host`]); ToRs by segment, rail, plane;
/// aggregation switches by plane. Host port `p` is in plane `p`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Hpn {
    /// Number of segments of the pod; a full pod has 15.
    pub segments: u32,
    /// Number of servers in each segment.
    pub servers_per_segment: u32,
    /// Number of NICs of each server.
    pub rails: u32,
    /// Number of planes; every NIC has one port in each.
    pub planes: u32,
    /// Number of aggregation switches in each plane.
    pub aggregations: u32,
    /// Rate of each NIC port.
    pub port_rate: BitRate,
    /// Rate of each cable between a ToR and an aggregation switch.
    pub uplink_rate: BitRate,
    /// Latency of every cable.
    pub propagation: Duration,
}

impl Default for Hpn {
    fn default() -> Self {
        Self {
            segments: 2,
            servers_per_segment: 128,
            rails: 4,
            planes: 2,
            aggregations: 60,
            port_rate: gbps(200),
            uplink_rate: gbps(400),
            propagation: LINK_LATENCY,
        }
    }
}

impl Hpn {
    /// Returns the NIC of one rail of one server.
    pub const fn host(&self, segment: u32, server: u32, rail: u32) -> NodeId {
        NodeId((segment * self.servers_per_segment + server) * self.rails + rail)
    }

    /// Builds the network.
    ///
    /// # Errors
    /// Returns `Zero` if a count is zero, `Topology` if the network is too large.
    pub fn build(&self) -> Result<Topology, BuildError> {
        at_least_one(&[
            ("segments", self.segments),
            ("servers_per_segment", self.servers_per_segment),
            ("rails", self.rails),
            ("planes", self.planes),
            ("aggregations", self.aggregations),
        ])?;
        let hosts = product(&[self.segments, self.servers_per_segment, self.rails])?;
        let mut network = TopologyBuilder::new(hosts)?;
        let tors: Vec<_> =
            network.add_switches(product(&[self.segments, self.rails, self.planes])?)?.collect();
        let aggregations: Vec<_> =
            network.add_switches(product(&[self.aggregations, self.planes])?)?.collect();
        for host in 0..hosts {
            let segment = host / (self.servers_per_segment * self.rails);
            let rail = host % self.rails;
            let first = (segment * self.rails + rail) * self.planes;
            for &tor in &tors[first as usize..(first + self.planes) as usize] {
                network.connect(NodeId(host), tor, self.port_rate, self.propagation)?;
            }
        }
        for pair in tors.chunks(self.planes as usize) {
            for (&tor, plane) in pair.iter().zip(aggregations.chunks(self.aggregations as usize)) {
                for &aggregation in plane {
                    network.connect(tor, aggregation, self.uplink_rate, self.propagation)?;
                }
            }
        }
        Ok(network.build()?)
    }
}
