//! The network of a scenario, built of network namespaces.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Result, bail};
use weft_lab::{
    Direction, Impairment, Lab, LabError, LabSpec, LinkCounters, NodeKind, PortCounters,
};
use weft_sim::fabric::Loss;
use weft_sim::report::NetworkReport;
use weft_sim::scenario::TopologySource;
use weft_sim::{Scenario, queue, switch};
use weft_topo::build::{LeafSpine, TopologyConfig};
use weft_topo::{LinkId, Topology};
use weft_transport::TransportConfig;
use weft_udp::{Agent, AgentConfig, PortConfig, SealConfig, WaitMode};
use weft_units::{BitRate, ByteCount, Duration};

/// The UDP port of agents: RoCE's.
const PORT: u16 = 4791;

/// An upper bound of the bytes of a packet's IP, UDP and transport headers.
const HEADERS: u16 = 128;

/// A lab that is built from a scenario.
#[derive(Debug)]
pub(crate) struct Network {
    lab: Lab,
    shape: LeafSpine,
}

impl Network {
    /// Builds it for packets of up to `mtu` bytes of payload; dropping it removes it.
    ///
    /// # Errors
    /// Returns an error if the scenario needs a feature that labs do not have, or the lab cannot be built.
    pub(crate) fn up(scenario: &Scenario, mtu: u16, seed: u64) -> Result<Self> {
        let shape = shape_of(scenario)?;
        let size = |count: u32| usize::try_from(count).expect("a count of nodes");
        let spec = LabSpec {
            leaves: size(shape.leaves),
            spines: size(shape.spines),
            hosts_per_leaf: size(shape.hosts_per_leaf),
            seed,
            mtu: mtu.saturating_add(HEADERS),
            offloads: false,
            ..LabSpec::named(format!("run-{}", std::process::id()))
        };
        let mut network = Self { lab: Lab::up(&spec)?, shape };
        network.limit_rates(scenario)?;
        Ok(network)
    }

    /// Sets each link's rate, and the scenario's queue at each router's port.
    fn limit_rates(&mut self, scenario: &Scenario) -> Result<()> {
        let fabric = self.lab.fabric().clone();
        for (index, link) in fabric.links.iter().enumerate() {
            let rate = match index.checked_sub(fabric.hosts()) {
                None => self.shape.host_rate,
                Some(uplink) => self.uplink_rate(uplink % fabric.spines()),
            };
            let port = Impairment {
                rate: Some(rate),
                queue: Some(scenario.queue.limit),
                mark_above: mark_above(scenario, rate),
                ..Impairment::default()
            };
            // A host's own port does not mark: its packets wait in the engine and not in the port.
            let is_host = index < fabric.hosts();
            let near = if is_host { Impairment { mark_above: None, ..port } } else { port };
            for (end, port) in [(&link.near, near), (&link.far, port)] {
                let from = fabric.nodes[end.node].name.clone();
                self.lab.impair(&link.name, Direction::From(from), &port)?;
            }
        }
        Ok(())
    }

    fn uplink_rate(&self, spine: usize) -> BitRate {
        self.shape.uplink_rates[spine % self.shape.uplink_rates.len()]
    }

    /// Opens one agent on each host.
    ///
    /// # Errors
    /// Returns an error if an agent's sockets cannot be opened.
    pub(super) fn agents(
        &self,
        scenario: &Scenario,
        transport: &TransportConfig,
    ) -> Result<Vec<Agent>> {
        let hosts = 0..self.lab.fabric().hosts();
        hosts.map(|host| self.agent(host, scenario, transport)).collect()
    }

    fn agent(
        &self,
        host: usize,
        scenario: &Scenario,
        transport: &TransportConfig,
    ) -> Result<Agent> {
        let fabric = self.lab.fabric();
        let local = (fabric.address(host), PORT).into();
        let mut config = AgentConfig::new(local, transport.clone()).accepting();
        config.wait = WaitMode::Block;
        // As on simulated hosts, connections that are joined have no keys.
        config.encryption = SealConfig::off();
        // Packets are sent one at a time, as they are paced.
        config.sockets.offload = false;
        config.port =
            Some(PortConfig { rate: self.shape.host_rate, packets: scenario.host.nic_packets });
        config.delays = self.latencies(host);
        Ok(self.lab.enter(&fabric.nodes[host].name, || Agent::open(&config))??)
    }

    /// Returns the latency of the cables between `host` and every other host.
    fn latencies(&self, host: usize) -> BTreeMap<IpAddr, Duration> {
        let fabric = self.lab.fabric();
        let leaf = fabric.leaf_of(host);
        let cables = |other| if fabric.leaf_of(other) == leaf { 2 } else { 4 };
        let latency =
            |other| (fabric.address(other).into(), self.shape.propagation * cables(other));
        let others = (0..fabric.hosts()).filter(|&other| other != host);
        others.map(latency).filter(|&(_, latency)| latency > Duration::ZERO).collect()
    }

    /// Returns the counters of every link.
    ///
    /// # Errors
    /// Returns an error if the kernel's counters cannot be read.
    pub(super) fn counters(&self) -> Result<Carried> {
        Ok(Carried(self.lab.counters()?))
    }

    /// Returns the bytes that wait at each port of the leaves.
    ///
    /// # Errors
    /// Returns an error if the kernel's queues cannot be read.
    pub(super) fn leaf_queues(&self, topology: &Topology) -> Result<ByPort, LabError> {
        let fabric = self.lab.fabric();
        let mut waiting = BTreeMap::new();
        for (number, node) in fabric.nodes.iter().enumerate() {
            if node.kind != NodeKind::Leaf {
                continue;
            }
            let backlogs = self.lab.backlogs(&node.name)?;
            for link in &fabric.links {
                for (here, there) in [(&link.near, &link.far), (&link.far, &link.near)] {
                    if let Some(&bytes) = backlogs.get(&here.device).filter(|_| here.node == number)
                    {
                        waiting.insert((here.node, there.node), bytes);
                    }
                }
            }
        }
        Ok(ByPort::new(&waiting, topology))
    }
}

/// A number of bytes for each port.
#[derive(Debug)]
pub(super) struct ByPort(BTreeMap<LinkId, u64>);

impl ByPort {
    /// Returns the bytes of the topology's links. Nodes have the same numbers there and in the lab.
    fn new(bytes: &BTreeMap<(usize, usize), u64>, topology: &Topology) -> Self {
        let of = |link: LinkId| {
            let ends = topology.link(link);
            Some((link, *bytes.get(&(ends.from.index(), ends.to.index()))?))
        };
        Self(topology.link_ids().filter_map(of).collect())
    }

    /// Returns the bytes of a link; zero for one without any.
    pub(super) fn of(&self, link: LinkId) -> u64 {
        self.0.get(&link).copied().unwrap_or(0)
    }
}

/// Returns the shape of the scenario's network, from which a lab is built.
///
/// # Errors
/// Returns an error if the scenario needs a feature that a lab's routers do not have.
pub(crate) fn shape_of(scenario: &Scenario) -> Result<LeafSpine> {
    let TopologySource::Shape(TopologyConfig::LeafSpine(shape)) = &scenario.topology else {
        bail!("a lab is a leaf–spine fabric; the scenario's topology is another");
    };
    if shape.parallel_links != 1 {
        bail!(
            "parallel_links is {}; a lab has one cable between two switches",
            shape.parallel_links
        );
    }
    if scenario.forwarding.kind != switch::Kind::Ecmp {
        let kind = scenario.forwarding.kind;
        bail!("forwarding.kind is {kind}; the routers of a lab do ecmp");
    }
    if scenario.pfc.enabled {
        bail!("pfc is enabled; the routers of a lab do not pause each other");
    }
    if scenario.active_controller().is_some() {
        bail!("a controller is not carried over to a lab; `weft route` steers its routers");
    }
    if !scenario.faults.is_empty() {
        bail!(
            "faults are not carried over to a lab; `weft lab set` makes them in one that is kept"
        );
    }
    Ok(shape.clone())
}

/// Returns the queue length beyond which a port of `rate` marks: the middle between `ecn_min` and `ecn_max`, which are
/// for 100 Gb/s, scaled to `rate`. Returns `None` if the scenario's ports do not mark.
fn mark_above(scenario: &Scenario, rate: BitRate) -> Option<ByteCount> {
    let queue = &scenario.queue;
    let middle = u128::from(queue.ecn_min.0.midpoint(queue.ecn_max.0));
    let bytes = middle * u128::from(rate.as_bps()) / 100_000_000_000;
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    (queue.kind == queue::Kind::Ecn).then_some(ByteCount(bytes))
}

/// The counters of every link, by its number in the lab.
#[derive(Debug)]
pub(super) struct Carried(Vec<LinkCounters>);

impl Carried {
    /// Returns the difference from `before`.
    pub(super) fn since(self, before: &Self) -> Self {
        let port = |now: PortCounters, was: PortCounters| PortCounters {
            packets: now.packets - was.packets,
            bytes: now.bytes - was.bytes,
            dropped: now.dropped - was.dropped,
            marked: now.marked - was.marked,
            queue_dropped: now.queue_dropped - was.queue_dropped,
        };
        let links = self.0.into_iter().zip(&before.0);
        let both = links.map(|(now, was)| LinkCounters {
            forward: port(now.forward, was.forward),
            backward: port(now.backward, was.backward),
        });
        Self(both.collect())
    }

    pub(super) fn network_report(&self, network: &Network) -> NetworkReport {
        let sum = |count: fn(&PortCounters) -> u64| {
            self.0.iter().map(|link| count(&link.forward) + count(&link.backward)).sum::<u64>()
        };
        let at_hosts = &self.0[..network.lab.fabric().hosts()];
        let lost = [
            (Loss::QueueFull.name(), sum(|port| port.queue_dropped)),
            (Loss::LossyLink.name(), sum(|port| port.dropped)),
        ];
        NetworkReport {
            packet_hops: sum(|port| port.packets),
            injected: at_hosts.iter().map(|link| link.forward.packets).sum(),
            delivered: at_hosts.iter().map(|link| link.backward.packets).sum(),
            marked: sum(|port| port.marked),
            lost: lost.into(),
            ..NetworkReport::default()
        }
    }

    /// Returns the bytes that each port sent.
    pub(super) fn bytes(&self, network: &Network, topology: &Topology) -> ByPort {
        let links = network.lab.fabric().links.iter().zip(&self.0);
        let directions = links.flat_map(|(link, carried)| {
            let (near, far) = (link.near.node, link.far.node);
            [((near, far), carried.forward.bytes), ((far, near), carried.backward.bytes)]
        });
        ByPort::new(&directions.collect(), topology)
    }
}
