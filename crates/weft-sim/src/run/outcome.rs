//! The report of a finished run.

use std::collections::BTreeMap;

use weft_topo::{Routes, Topology};
use weft_transport::Stats;
use weft_units::Seed;

use super::RunError;
use crate::fabric::Loss;
use crate::measure::{
    FlowReport, Goodput, IdealTimeParameters, PfcReport, PortReport, QueueReport, ReorderingReport,
};
use crate::overlay::Vtep;
use crate::pcie::PcieReport;
use crate::report::{
    ControllerReport, FlowLine, NetworkReport, OverlayReport, Report, TransportReport,
    WorkloadReport,
};
use crate::scenario::Scenario;
use crate::time::{SimSpan, SimTime};
use crate::traffic::{FinishedFlow, Traffic};
use crate::workload::Workload;
use crate::world::{Network, World};

/// The results of a finished run, in a simulated or a real world.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// The network as it was built; ideal times ignore later failures.
    pub topology: &'a Topology,
    /// Payload of a full packet, bytes.
    pub mtu: u16,
    /// Bytes around a packet's payload.
    pub overhead: u16,
    /// `true` if every workload was done.
    pub finished: bool,
    /// The duration of the run, without the time that was skipped.
    pub elapsed: SimSpan,
    /// The channels and messages.
    pub traffic: &'a Traffic,
    /// The workloads that sent them.
    pub workloads: &'a [Box<dyn Workload>],
    /// The sum of all engines' statistics.
    pub transport: Stats,
    /// Bytes each host received.
    pub received: Vec<u64>,
    /// The network's counters.
    pub network: NetworkReport,
    /// The load of its ports.
    pub ports: PortReport,
    /// Its queues by kind of port, if they were sampled.
    pub queues: BTreeMap<String, QueueReport>,
    /// The order of packets at their receivers, if it was measured.
    pub reordering: Option<ReorderingReport>,
}

impl Outcome<'_> {
    /// Returns the report.
    ///
    /// # Errors
    /// Routes cannot be computed.
    pub fn report(self, scenario: &Scenario, seed: Seed) -> Result<Report, RunError> {
        let routes = Routes::compute(self.topology, &weft_topo::Failures::none())?;
        let bins: Vec<u64> = scenario.measure.size_bins.iter().map(|bin| bin.0).collect();
        let parameters = IdealTimeParameters {
            topology: self.topology,
            routes: &routes,
            mtu: self.mtu,
            warm_up: SimTime::EPOCH + SimSpan::from(scenario.measure.warm_up),
            bins: &bins,
            ideal: scenario.measure.ideal,
            overhead: self.overhead,
        };
        let listed = if scenario.measure.flows { &self.traffic.finished[..] } else { &[] };
        Ok(Report {
            scenario: scenario.name.clone(),
            seed: seed.0,
            finished: self.finished,
            simulated_us: self.elapsed.as_micros_f64(),
            transport: TransportReport::from(&self.transport),
            goodput: Goodput::new(&self.received, self.elapsed),
            workloads: workload_reports(scenario, &self, &parameters),
            network: self.network,
            queues: self.queues,
            ports: self.ports,
            reordering: self.reordering,
            pfc: None,
            pcie: None,
            overlay: None,
            controller: None,
            fast_forward: None,
            comparison: None,
            flows: listed.iter().map(|flow| line(flow, &parameters)).collect(),
        })
    }
}

pub(super) fn report(
    scenario: &Scenario,
    seed: Seed,
    world: &World,
    finished: bool,
) -> Result<Report, RunError> {
    let network = &world.network;
    let (fabric, ended_at) = (&network.fabric, world.ended_at());
    let watch = world.port_watch();
    let outcome = Outcome {
        topology: &fabric.topology,
        mtu: network.hosts[0].endpoint.config().mtu,
        overhead: network.hosts[0].endpoint.config().packet_overhead,
        finished,
        elapsed: ended_at.since(SimTime::EPOCH),
        traffic: &network.traffic,
        workloads: world.workloads(),
        transport: engine_counters(network),
        received: network.hosts.iter().map(|host| host.received_bytes).collect(),
        network: network_report(network),
        ports: watch.map_or_else(PortReport::default, |watch| watch.report(fabric, ended_at)),
        queues: world.queue_watch().map(|watch| watch.report(fabric)).unwrap_or_default(),
        reordering: network.reordering.as_ref().map(|watch| watch.report()),
    };
    let skipped = network.traffic.skipped;
    Ok(Report {
        simulated_us: (outcome.elapsed + skipped).as_micros_f64(),
        fast_forward: world.fast_forward_report(),
        pfc: PfcReport::new(fabric, ended_at),
        pcie: pcie_report(network),
        overlay: overlay_report(network),
        controller: world
            .steering()
            .map(|steering| ControllerReport::new(*steering.stats(), steering.windows().to_vec())),
        ..outcome.report(scenario, seed)?
    })
}

fn network_report(network: &Network) -> NetworkReport {
    let fabric = &network.fabric;
    let counters = fabric.counters;
    let lost = Loss::ALL.iter().map(|&loss| (loss.name(), counters.lost[loss as usize]));
    NetworkReport {
        events: network.events_handled,
        packet_hops: fabric.packet_hops(),
        injected: counters.injected,
        duplicated: counters.duplicated,
        control_sent: counters.control_sent,
        delivered: counters.delivered,
        control_received: counters.control_received,
        in_flight: fabric.packets.live(),
        forged: counters.forged,
        marked: counters.marked,
        trimmed: counters.trimmed,
        lost: lost.collect(),
    }
}

fn pcie_report(network: &Network) -> Option<PcieReport> {
    let buses = network.hosts.iter().filter_map(|host| host.dma.as_ref());
    let counts = buses.map(|bus| bus.counts()).reduce(|mut all, one| {
        all += one;
        all
    });
    counts.map(PcieReport::from)
}

fn overlay_report(network: &Network) -> Option<OverlayReport> {
    let vteps = network.hosts.iter().filter_map(|host| host.stack.as_deref()?.vtep());
    let counts = vteps.map(Vtep::counters).reduce(|mut all, one| {
        all += one;
        all
    });
    counts.as_ref().map(OverlayReport::from)
}

fn engine_counters(network: &Network) -> Stats {
    let mut total = Stats::default();
    for host in &network.hosts {
        total += host.stats();
    }
    total
}

fn workload_reports(
    scenario: &Scenario,
    outcome: &Outcome<'_>,
    parameters: &IdealTimeParameters<'_>,
) -> Vec<WorkloadReport> {
    let traffic = outcome.traffic;
    let warm_up = SimSpan::from(scenario.measure.warm_up).as_micros_f64();
    let mut of_workload: Vec<Vec<&FinishedFlow>> = vec![Vec::new(); scenario.workloads.len()];
    for flow in &traffic.finished {
        of_workload[flow.workload as usize].push(flow);
    }
    let reports = scenario.workloads.iter().zip(outcome.workloads).zip(of_workload).enumerate();
    reports
        .map(|(index, ((config, workload), flows))| {
            let iterations = workload.iterations().to_vec();
            let counted = iterations.iter().filter(|done| done.start_us >= warm_up);
            let mut speeds: Vec<f64> = counted.map(|done| done.bus_gbps).collect();
            WorkloadReport {
                kind: config.kind().name(),
                done: workload.is_done(),
                flows: FlowReport::new(traffic.recorded_by(index), &flows, parameters),
                bus_gbps: crate::measure::Distribution::of(&mut speeds),
                iterations,
            }
        })
        .collect()
}

fn line(flow: &FinishedFlow, parameters: &IdealTimeParameters<'_>) -> FlowLine {
    let micros = |time: SimTime| time.since(SimTime::EPOCH).as_micros_f64();
    FlowLine {
        workload: flow.workload,
        tag: flow.tag,
        source: flow.source.0,
        destination: flow.destination.0,
        bytes: flow.length,
        start_us: micros(flow.submitted),
        delivered_us: micros(flow.delivered),
        acknowledged_us: micros(flow.acknowledged),
        slowdown: parameters.slowdown(flow),
    }
}
