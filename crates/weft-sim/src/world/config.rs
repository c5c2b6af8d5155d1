//! The configuration of a world, and the values that follow from it.

use weft_seal::Seals;
use weft_topo::{Failures, NodeId, RouteError, Routes, Topology};
use weft_transport::{ConfigError, ConnectionId, TransportConfig};
use weft_units::{ByteCount, Duration};
use weft_wire::RdmaHeader;

use crate::fabric::{FabricConfig, idle_latency};
use crate::nic;
use crate::pcie::PcieConfig;
use crate::port::PortError;
use crate::port::pfc::Sending;
use crate::scenario::{ControllerSection, SourcePorts};
use crate::stack::StackConfig;
use crate::time::SimSpan;
use crate::workload::WorkloadError;

/// Configuration of a world.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// Configuration of every host's engine.
    pub transport: TransportConfig,
    /// Configuration of the switches.
    pub fabric: FabricConfig,
    /// `true` if connections are set up by packets instead of outside the network.
    pub handshake: bool,
    /// Time from a payload's arrival at the NIC to its placement.
    pub place_delay: Duration,
    /// The bus between NICs and memory; `None` places payloads at once.
    pub pcie: Option<PcieConfig>,
    /// The stack that channels belong to in place of the transport: X-RDMA, or an overlay.
    pub stack: Option<StackConfig>,
    /// Bound on the irregularity of a host's sending; see [`Jitter`](crate::nic::Jitter).
    pub jitter: SimSpan,
    /// Number of queued packets up to which a host's port takes more from the engine.
    pub nic_packets: u16,
    /// `true` if a connection uses one of its host's ports; otherwise its paths are dealt to all.
    pub bond: bool,
    /// The choice of connections' source ports.
    pub source_ports: SourcePorts,
    /// Time that the control plane needs to route around a failure; `None` never does.
    pub reroute_after: Option<Duration>,
    /// The route controller, if there is one.
    pub controller: Option<ControllerSection>,
}

impl WorldConfig {
    /// Returns the port of its host by which a packet leaves: a number modulo the number of ports.
    #[inline]
    pub(super) fn port_of(&self, connection: Option<ConnectionId>, path: usize) -> usize {
        match connection {
            Some(connection) if self.bond => connection.0 as usize,
            _ => path,
        }
    }

    /// Returns `true` if channels belong to a stack, not to the transport.
    pub(super) fn stack_has_channels(&self) -> bool {
        self.stack.as_ref().is_some_and(StackConfig::has_channels)
    }

    /// Checks that telemetry, which the congestion control needs, reaches it.
    ///
    /// # Errors
    /// The ports write none, or packets are not the engines'.
    pub(crate) fn check_telemetry(&self) -> Result<(), PortError> {
        if self.fabric.port.kind == crate::port::Kind::Fifo {
            return Err(PortError::NoTelemetry);
        }
        if self.stack.is_some() { Err(PortError::TelemetryOutOfReach) } else { Ok(()) }
    }

    /// Returns the limits of hosts' packets.
    pub(crate) fn sending(&self) -> Sending {
        let has_rdma = matches!(self.stack, Some(StackConfig::Messages(_)));
        let header = if has_rdma { RdmaHeader::MAX_LEN } else { 0 };
        let header = u16::try_from(header).expect("headers are short");
        let largest = largest_frame(&self.transport).saturating_add(header);
        let largest = match self.stack {
            Some(StackConfig::Sealed(_)) => {
                largest.saturating_add(Seals::OVERHEAD).max(MAX_SETUP_FRAME)
            }
            _ => largest,
        };
        Sending { largest, jitter: self.jitter }
    }
}

/// An upper bound of the bytes on the wire of a packet of set-up: an accept with a key exchange has 189 in its
/// datagram.
const MAX_SETUP_FRAME: u16 = 256;

/// The error of a world that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The transport's configuration is out of range.
    #[error("transport: {0}")]
    Transport(#[from] ConfigError),
    /// The topology cannot be routed.
    #[error("routes: {0}")]
    Routes(#[from] RouteError),
    /// The ports do not fit.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The network cannot be written as the tables that a route controller reads.
    #[error("controller: {0}")]
    Controller(#[from] weft_route::InstalledError),
    /// A workload does not fit the topology.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
}

/// Number of hosts whose state stays in the processor's cache without prefetching.
pub(super) const NEARBY_HOSTS: usize = 256;

/// Returns each node's side of the event queue: if there are many hosts and every cable leads one tier up or down, the
/// parity of its tier. (Events of one instant may then be in another order, so networks that fit the cache keep one
/// side.)
pub(super) fn side_of(topology: &Topology) -> Vec<u8> {
    let parity = |node| topology.tier(node) % 2;
    let leads_across = |link| {
        let weft_topo::Link { from, to, .. } = topology.link(link);
        parity(from) != parity(to)
    };
    let hosts = topology.hosts();
    let has_sides = hosts as usize > NEARBY_HOSTS && topology.link_ids().all(leads_across);
    let nodes = (0..hosts + topology.switches()).map(NodeId);
    nodes.map(|node| if has_sides { parity(node) } else { 0 }).collect()
}

/// Returns the bytes on the wire of a packet full of payload.
pub(crate) fn largest_frame(transport: &TransportConfig) -> u16 {
    transport.mtu.saturating_add(transport.packet_overhead)
}

/// Returns the round-trip time of an empty network for a sender: a full packet, its ACK, and the packets that the
/// receiver awaits before it acknowledges. It is the longest from host 0 to a sample of the others. Returns `None` if
/// there are no routes.
pub fn base_round_trip(topology: &Topology, transport: &TransportConfig) -> Option<Duration> {
    let routes = Routes::compute(topology, &Failures::none()).ok()?;
    let data = largest_frame(transport);
    let acknowledgement = nic::ack_len(transport.packet_overhead);
    let source = NodeId(0);
    let one_way = |to: NodeId, size| idle_latency(topology, &routes, source, to, size);
    let round_trip = |to: NodeId| Some(one_way(to, data)? + one_way(to, acknowledgement)?);
    let step = (topology.hosts() / 64).max(1) as usize;
    let farthest = topology.host_ids().skip(1).step_by(step).filter_map(round_trip).max()?;
    let awaited = ByteCount(u64::from(data) * u64::from(transport.ack_every - 1));
    Some(farthest + transport.line_rate.serialization_delay(awaited).min(transport.ack_delay))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weft_units::Seed;

    use super::*;
    use crate::Scenario;

    #[test]
    fn sides_alternate_in_large_networks_and_no_event_is_in_the_past() {
        let text = r#"
            topology = { kind = "leaf-spine", leaves = 17, spines = 4, hosts_per_leaf = 16 }
            run = { limit = "2ms" }
            [[workload]]
            kind = "training"
            rounds = 3
            compute = "10us"
            collective = [{ operation = "all-gather", size = "64KB", ranks = 2 }]
        "#;
        let scenario = Scenario::parse(text, Path::new("")).unwrap();
        let sides = side_of(&scenario.build_topology().unwrap());
        assert_eq!(sides, [vec![0; 272], vec![1; 17], vec![0; 4]].concat());
        // Every host begins a round when the last one has completed the previous round.
        let report = crate::run(&scenario, Seed(1)).unwrap();
        assert!(report.finished && report.workloads[0].iterations.len() == 3);
        assert_eq!(report.workloads[0].flows.finished, 3 * 272);
        assert_eq!(report, crate::run(&scenario, Seed(1)).unwrap());
    }
}
