//! One run: a scenario and a seed give a report, the same bytes every time.

use weft_topo::{RouteError, Topology};
use weft_transport::Stats;
use weft_units::Seed;

use crate::fabric::Loss;
use crate::fault::{FaultError, Plan, Scheduler};
use crate::measure::{FlowReport, Goodput, PfcReport, PortReport, Yardstick};
use crate::report::{FlowLine, NetworkReport, Report, TransportReport, WorkloadReport};
use crate::scenario::{Scenario, ScenarioError};
use crate::time::{SimSpan, SimTime};
use crate::traffic::FinishedFlow;
use crate::workload::{Recipe, Setting, WorkloadError};
use crate::world::{BuildError, Network, World};

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The scenario's text is wrong.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The world cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A workload does not fit.
    #[error("workload {number} ({kind}): {error}")]
    Workload {
        /// Its place in the scenario, counting from one.
        number: usize,
        /// Its name.
        kind: &'static str,
        /// What is wrong.
        error: WorkloadError,
    },
    /// A fault does not fit.
    #[error("fault {number} ({kind}): {error}")]
    Fault {
        /// Its place in the scenario, counting from one.
        number: usize,
        /// Its name.
        kind: &'static str,
        /// What is wrong.
        error: FaultError,
    },
    /// Routes cannot be computed.
    #[error(transparent)]
    Routes(#[from] RouteError),
}

/// Runs a scenario.
///
/// # Errors
/// The scenario does not describe a world that can be built.
pub fn run(scenario: &Scenario, seed: Seed) -> Result<Report, RunError> {
    let mut world = build(scenario, seed)?;
    world.start();
    let finished = world.run(SimTime::EPOCH + SimSpan::from(scenario.run.limit));
    report(scenario, seed, &world, finished)
}

/// The world of a scenario, at rest.
///
/// # Errors
/// The scenario does not describe a world that can be built.
pub fn build(scenario: &Scenario, seed: Seed) -> Result<World, RunError> {
    let topology = scenario.build_topology()?;
    let config = scenario.world_config(&topology)?;
    let plan = fault_plan(scenario, &topology, seed)?;
    let mut workloads = Vec::with_capacity(scenario.workloads.len());
    for (index, workload) in (0..).zip(&scenario.workloads) {
        let seed = seed.child("workload", index);
        let setting = Setting { topology: &topology, seed, folder: &scenario.folder };
        workloads.push(workload.build(&setting).map_err(|error| RunError::Workload {
            number: workloads.len() + 1,
            kind: workload.kind().name(),
            error,
        })?);
    }
    let mut world = World::new(topology, config, seed)?;
    world.set_plan(plan);
    workloads.into_iter().for_each(|workload| world.add_workload(workload));
    world.watch(&scenario.measure);
    Ok(world)
}

fn fault_plan(
    scenario: &Scenario,
    topology: &Topology,
    seed: Seed,
) -> Result<Vec<(SimTime, crate::fault::Action)>, RunError> {
    let mut plan = Plan::new(topology, seed.child("faults", 0));
    for (index, fault) in scenario.faults.iter().enumerate() {
        fault.schedule(&mut plan).map_err(|error| RunError::Fault {
            number: index + 1,
            kind: fault.kind().name(),
            error,
        })?;
    }
    Ok(plan.into_actions())
}

fn report(
    scenario: &Scenario,
    seed: Seed,
    world: &World,
    finished: bool,
) -> Result<Report, RunError> {
    let network = &world.network;
    let fabric = &network.fabric;
    let elapsed = world.ended_at().since(SimTime::EPOCH);
    // Ideal times are those of the network as it was built, whatever failed since.
    let routes = weft_topo::Routes::compute(&fabric.topology, &weft_topo::Failures::none())?;
    let bins: Vec<u64> = scenario.measure.size_bins.iter().map(|bin| bin.0).collect();
    let yardstick = Yardstick {
        topology: &fabric.topology,
        routes: &routes,
        mtu: network.hosts[0].endpoint.config().mtu,
        warm_up: SimTime::EPOCH + SimSpan::from(scenario.measure.warm_up),
        bins: &bins,
    };
    let listed = if scenario.measure.flows { &network.traffic.finished[..] } else { &[] };
    let received: Vec<u64> = network.hosts.iter().map(|host| host.received_bytes).collect();
    Ok(Report {
        scenario: scenario.name.clone(),
        seed: seed.0,
        finished,
        simulated_us: elapsed.as_micros_f64(),
        network: network_report(network),
        transport: transport_report(network),
        goodput: Goodput::new(&received, elapsed),
        workloads: workload_reports(scenario, world, &yardstick),
        queues: world.queue_watch().map(|watch| watch.report(fabric)).unwrap_or_default(),
        ports: world
            .port_watch()
            .map_or_else(PortReport::default, |watch| watch.report(fabric, world.ended_at())),
        pfc: PfcReport::new(fabric, world.ended_at()),
        flows: listed.iter().map(|flow| line(flow, &yardstick)).collect(),
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
        switch_made: counters.switch_made,
        delivered: counters.delivered,
        switch_taken: counters.switch_taken,
        in_flight: fabric.parcels.live(),
        forged: counters.forged,
        marked: counters.marked,
        lost: lost.collect(),
    }
}

fn transport_report(network: &Network) -> TransportReport {
    let mut total = Stats::default();
    for host in &network.hosts {
        total += host.endpoint.stats();
    }
    TransportReport::from(&total)
}

fn workload_reports(
    scenario: &Scenario,
    world: &World,
    yardstick: &Yardstick<'_>,
) -> Vec<WorkloadReport> {
    let traffic = &world.network.traffic;
    let mut of_workload: Vec<Vec<FinishedFlow>> = vec![Vec::new(); scenario.workloads.len()];
    for flow in &traffic.finished {
        of_workload[flow.workload as usize].push(*flow);
    }
    let reports = scenario.workloads.iter().zip(world.workloads()).zip(of_workload).enumerate();
    reports
        .map(|(index, ((config, workload), flows))| {
            let iterations = workload.iterations().to_vec();
            let mut speeds: Vec<f64> = iterations.iter().map(|done| done.bus_gbps).collect();
            WorkloadReport {
                kind: config.kind().name(),
                done: workload.is_done(),
                flows: FlowReport::new(traffic.recorded_by(index), &flows, yardstick),
                bus_gbps: crate::measure::Distribution::of(&mut speeds),
                iterations,
            }
        })
        .collect()
}

fn line(flow: &FinishedFlow, yardstick: &Yardstick<'_>) -> FlowLine {
    let micros = |time: SimTime| time.since(SimTime::EPOCH).as_micros_f64();
    FlowLine {
        workload: flow.workload,
        tag: flow.tag,
        source: flow.source.0,
        destination: flow.destination.0,
        bytes: flow.length,
        start_us: micros(flow.submitted),
        delivered_us: micros(flow.delivered),
        acknowledged_us: micros(flow.sent),
        slowdown: yardstick.slowdown(flow),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn flows_that_do_not_finish_count_with_what_arrived_of_them() {
        let text = r#"
            name = "cut short"
            topology = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 2 }
            run = { limit = "100us" }
            [[workload]]
            kind = "permutation"
            size = "1GB"
        "#;
        let scenario = Scenario::parse(text, Path::new("")).unwrap();
        let report = run(&scenario, Seed(1)).unwrap();
        let flows = &report.workloads[0].flows;
        assert_eq!((report.finished, flows.started, flows.finished), (false, 4, 0));
        // Ports of 100 Gb/s; the first packets need a few microseconds.
        let hosts = report.goodput.per_host_gbps;
        assert!(hosts.count == 4 && hosts.min > 30.0 && hosts.max < 100.0, "{hosts:?}");
    }

    #[test]
    fn a_flow_alone_is_not_slowed_down() {
        for size in ["1KB", "10KB", "1MB"] {
            let text = format!(
                r#"
                topology = {{ kind = "leaf-spine" }}
                transport = {{ profile = "ecmp", mtu = 1000, ack_every = 1 }}
                host = {{ jitter = "0ns" }}
                [[workload]]
                kind = "pairs"
                pairs = [[0, 127]]
                size = "{size}"
                "#
            );
            let scenario = Scenario::parse(&text, Path::new("")).unwrap();
            let report = run(&scenario, Seed(1)).unwrap();
            let slowdown = report.workloads[0].flows.slowdown.mean;
            assert!((1.0..1.01).contains(&slowdown), "{size}: {slowdown}");
        }
    }

    #[test]
    fn a_link_that_carries_half_of_the_time_is_half_full() {
        let text = r#"
            topology = { kind = "leaf-spine", leaves = 2, spines = 1, hosts_per_leaf = 1 }
            [[workload]]
            kind = "pairs"
            pairs = [[0, 1]]
            size = "10MB"
        "#;
        let scenario = Scenario::parse(text, Path::new("")).unwrap();
        let tiers = run(&scenario, Seed(1)).unwrap().ports.tiers;
        let kinds: Vec<_> = tiers.iter().map(|(kind, load)| (kind.as_str(), load.links)).collect();
        assert_eq!(kinds, [("host-up", 2), ("leaf-down", 2), ("leaf-up", 2), ("spine-down", 2)]);
        // One of each pair carries the flow, the other its ACKs.
        for load in tiers.values() {
            assert!(load.max > 0.95 && load.max <= 1.0, "{load:?}");
            assert!((0.48..0.53).contains(&load.mean), "{load:?}");
        }
    }
}
