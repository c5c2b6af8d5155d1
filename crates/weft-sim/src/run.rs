//! One run: a scenario and a seed always give the same report, byte by byte.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use weft_plan::ports::PlanError;
use weft_topo::{RouteError, Routes, Topology};
use weft_transport::Stats;
use weft_units::Seed;

use crate::capture::Capture;
use crate::fabric::Loss;
use crate::fault::{FaultError, Plan, Scheduler};
use crate::hooks::{Advance, Hooks};
use crate::measure::{FlowReport, Goodput, IdealTimeParameters, PfcReport, PortReport};
use crate::overlay::Vtep;
use crate::pcie::PcieReport;
use crate::report::{
    Comparison, ControllerReport, FlowLine, NetworkReport, OverlayReport, Report, TransportReport,
    WorkloadReport,
};
use crate::scenario::{Scenario, ScenarioError};
use crate::steps::Steps;
use crate::time::{SimSpan, SimTime};
use crate::traffic::{FinishedFlow, Traffic};
use crate::workload::{Setting, Workload, WorkloadBuilder, WorkloadConfig, WorkloadError};
use crate::world::{BuildError, Network, Watcher, World};

/// The error of a scenario that cannot be run.
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
        /// The error.
        error: WorkloadError,
    },
    /// A fault does not fit.
    #[error("fault {number} ({kind}): {error}")]
    Fault {
        /// Its place in the scenario, counting from one.
        number: usize,
        /// Its name.
        kind: &'static str,
        /// The error.
        error: FaultError,
    },
    /// Source ports cannot be planned.
    #[error("host.source_ports: {0}")]
    Ports(#[from] PlanError),
    /// Routes cannot be computed.
    #[error(transparent)]
    Routes(#[from] RouteError),
    /// After a failure or an order of the controller, the routes do not fit the switches' tables.
    #[error("new routes after {at} of the run: {error}")]
    Rerouting {
        /// The time of the new routes.
        at: SimTime,
        /// The error.
        error: RouteError,
    },
    /// The owner ended the run early.
    #[error("the run was cancelled")]
    Cancelled,
}

/// Runs a scenario, and the exact one after it if the scenario requests the comparison.
///
/// # Errors
/// The scenario does not describe a world that can be built.
pub fn run(scenario: &Scenario, seed: Seed) -> Result<Report, RunError> {
    run_with(scenario, seed, &Hooks::default())
}

/// Runs a scenario with its owner's additions.
///
/// # Errors
/// The scenario does not describe a world that can be built, or the owner cancelled the run.
pub fn run_with(scenario: &Scenario, seed: Seed, hooks: &Hooks) -> Result<Report, RunError> {
    if hooks.cancel.is_cancelled() {
        return Err(RunError::Cancelled);
    }
    let mut world = build_with(scenario, seed, hooks)?;
    world.start();
    world.plan_source_ports()?;
    let report = finish(scenario, seed, &mut world, &mut Steps::new(&hooks.advance))?;
    compared(report, scenario, seed, hooks)
}

/// Adds the comparison with the exact run, if the scenario requests it.
fn compared(
    mut report: Report,
    scenario: &Scenario,
    seed: Seed,
    hooks: &Hooks,
) -> Result<Report, RunError> {
    if scenario.run.compare_exact {
        let mut exact = scenario.clone();
        (exact.run.fast_forward, exact.run.compare_exact) = (None, false);
        // The steps of this run were those of the first.
        let hooks = Hooks { advance: Advance::default(), ..hooks.clone() };
        let exact = run_with(&exact, seed, &hooks)?;
        report.comparison = Some(Comparison::new(&exact, &report));
    }
    Ok(report)
}

/// Runs a scenario on up to `threads` threads: the report is the same for any number. Returns with it the reason why
/// the run took one thread, if it did although it may have had more. A watcher that looks at nothing is `()`.
///
/// # Errors
/// As [`run`].
pub fn run_on(
    scenario: &Scenario,
    seed: Seed,
    threads: NonZeroUsize,
    watcher: &mut dyn Watcher,
) -> Result<(Report, Option<&'static str>), RunError> {
    let mut world = build(scenario, seed)?;
    world.set_threads(threads);
    let alone_because = match threads {
        NonZeroUsize::MIN => None,
        _ if watcher.wants_windows() => Some("a watcher looks at the whole network"),
        _ => world.runs_alone_because(),
    };
    world.start();
    world.plan_source_ports()?;
    let report = finish(scenario, seed, &mut world, watcher)?;
    Ok((compared(report, scenario, seed, &Hooks::default())?, alone_because))
}

/// Runs a scenario, watched by `watcher`; the report is that of [`run`]. The packets that hosts send and receive are
/// added to `capture`, if there is one.
///
/// # Errors
/// As [`run`].
pub fn run_watched(
    scenario: &Scenario,
    seed: Seed,
    capture: &mut Option<Capture>,
    watcher: &mut dyn Watcher,
) -> Result<Report, RunError> {
    let mut world = build(scenario, seed)?;
    world.network.capture = capture.take();
    world.start();
    world.plan_source_ports()?;
    let report = finish(scenario, seed, &mut world, watcher);
    *capture = world.network.capture.take();
    compared(report?, scenario, seed, &Hooks::default())
}

/// Runs a world that has started to its end; returns its report.
fn finish(
    scenario: &Scenario,
    seed: Seed,
    world: &mut World,
    watcher: &mut dyn Watcher,
) -> Result<Report, RunError> {
    let finished = world.run_watched(limit(scenario), watcher);
    if world.was_cancelled() {
        return Err(RunError::Cancelled);
    }
    if let Some(error) = world.route_error() {
        return Err(RunError::Rerouting { at: world.ended_at(), error });
    }
    report(scenario, seed, world, finished)
}

fn limit(scenario: &Scenario) -> SimTime {
    SimTime::EPOCH + SimSpan::from(scenario.run.limit)
}

/// Returns the world of a scenario before its start.
///
/// # Errors
/// The scenario does not describe a world that can be built.
pub fn build(scenario: &Scenario, seed: Seed) -> Result<World, RunError> {
    build_with(scenario, seed, &Hooks::default())
}

fn build_with(scenario: &Scenario, seed: Seed, hooks: &Hooks) -> Result<World, RunError> {
    let topology = scenario.build_topology()?;
    let mut config = scenario.world_config(&topology)?;
    config.transport.external = hooks.external.clone();
    let plan = fault_plan(scenario, &topology, seed)?;
    let workloads = workloads(scenario, &topology, seed)?;
    let mut world = World::new(topology, config, seed)?;
    world.set_plan(plan);
    workloads.into_iter().for_each(|workload| world.add_workload(workload));
    world.watch(&scenario.measure);
    world.cancel_when(hooks.cancel.clone());
    if let Some(threshold) = scenario.run.fast_forward {
        world.fast_forward(threshold);
    }
    Ok(world)
}

/// Returns the workloads of a scenario: the same flows in every world.
///
/// # Errors
/// One does not fit the topology.
pub fn workloads(
    scenario: &Scenario,
    topology: &Topology,
    seed: Seed,
) -> Result<Vec<Box<dyn Workload>>, RunError> {
    let build = |(index, workload): (usize, &WorkloadConfig)| {
        let seed = seed.child("workload", index as u64);
        let setting = Setting { topology, seed, folder: &scenario.folder };
        workload.build(&setting).map_err(|error| RunError::Workload {
            number: index + 1,
            kind: workload.kind().name(),
            error,
        })
    };
    scenario.workloads.iter().enumerate().map(build).collect()
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
            queues: BTreeMap::new(),
            ports: self.ports,
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

fn report(
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
    };
    let skipped = network.traffic.skipped;
    Ok(Report {
        simulated_us: (outcome.elapsed + skipped).as_micros_f64(),
        fast_forward: world.fast_forward_report(),
        queues: world.queue_watch().map(|watch| watch.report(fabric)).unwrap_or_default(),
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn unfinished_flows_count_with_the_bytes_that_arrived() {
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
        // Ports have 100 Gb/s; the first packets take a few microseconds.
        let hosts = report.goodput.per_host_gbps;
        assert!(hosts.count == 4 && hosts.min > 30.0 && hosts.max < 100.0, "{hosts:?}");
    }

    #[test]
    fn a_cancelled_run_ends_at_the_next_check() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicU64, Ordering};

        let text = r#"
            topology = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 2 }
            [[workload]]
            kind = "permutation"
            size = "100MB"
        "#;
        let scenario = Scenario::parse(text, Path::new("")).unwrap();
        let asked = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&asked);
        let cancel = crate::Cancel::when(move || counter.fetch_add(1, Ordering::Relaxed) == 20);
        let hooks = Hooks { cancel, ..Hooks::default() };
        let ended = run_with(&scenario, Seed(1), &hooks);
        assert!(matches!(ended, Err(RunError::Cancelled)), "{ended:?}");
        assert_eq!(asked.load(Ordering::Relaxed), 21, "it is not asked again");
    }

    #[test]
    fn routes_that_do_not_fit_end_the_run_with_their_error() {
        let text = r#"
            topology = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 2 }
            [[workload]]
            kind = "permutation"
            size = "10MB"
        "#;
        let scenario = Scenario::parse(text, Path::new("")).unwrap();
        let mut world = build(&scenario, Seed(1)).unwrap();
        world.start();
        // To install 65,535 host routes would take minutes.
        let refused = Err(RouteError::TooManyAreas { host: 7 });
        assert!(world.network.has_routes(Ok(())) && !world.network.has_routes(refused));
        let ended = finish(&scenario, Seed(1), &mut world, &mut ()).unwrap_err();
        assert_eq!(
            ended.to_string(),
            "new routes after 0.000us of the run: a route for host 7 alone is one more than 65535 \
             areas: steer fewer hosts"
        );
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
    fn bonded_hosts_distribute_connections_over_their_ports() {
        let fill = |bond: bool, seed: u64| {
            let text = format!(
                r#"
                topology = {{ kind = "hpn", segments = 1, servers_per_segment = 2, rails = 1, aggregations = 1 }}
                transport = {{ policy = "single", paths = 128 }}
                host = {{ bond = {bond} }}
                [[workload]]
                kind = "pairs"
                pairs = [[0, 1]]
                connections = 2
                size = "4MB"
                "#
            );
            let scenario = Scenario::parse(&text, Path::new("")).unwrap();
            run(&scenario, Seed(seed)).unwrap().goodput.total_gbps
        };
        // There are two ports of 200 Gb/s. Each of 128 single paths is on one of them, and for some seed both are.
        assert!((1..9).all(|seed| fill(true, seed) > 300.0));
        assert!((1..9).any(|seed| fill(false, seed) < 200.0));
    }

    #[test]
    fn slow_uplinks_are_reported_apart_from_fast_ones() {
        let text = r#"
            transport = { policy = "oblivious", congestion = "fixed-window" }
            run = { limit = "1ms" }
            [topology]
            kind = "leaf-spine"
            leaves = 2
            spines = 2
            hosts_per_leaf = 1
            uplink_rates = ["100Gbps", "10Gbps"]
            [[workload]]
            kind = "pairs"
            pairs = [[0, 1]]
            size = "100MB"
        "#;
        let scenario = Scenario::parse(text, Path::new("")).unwrap();
        let slow = run(&scenario, Seed(1)).unwrap().ports.slow_uplinks.unwrap();
        // Each link gets half of the packets: the slow link of the sender's leaf is full, and the other carries no
        // more bytes. The links of the receiver's leaf carry ACKs.
        assert_eq!(slow.links, 2);
        assert!(slow.load > 0.45 && slow.fast_load < 0.1, "{slow:?}");
        assert!((0.4..0.6).contains(&slow.share), "{slow:?}");
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
        // One of each pair carries the flow, and the other its ACKs.
        for load in tiers.values() {
            assert!(load.max > 0.95 && load.max <= 1.0, "{load:?}");
            assert!((0.48..0.53).contains(&load.mean), "{load:?}");
        }
    }
}
