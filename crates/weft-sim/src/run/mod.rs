//! One run: a scenario and a seed always give the same report, byte by byte.

mod outcome;
#[cfg(test)]
mod tests;

use std::num::NonZeroUsize;

use weft_plan::ports::PlanError;
use weft_topo::{RouteError, Topology};
use weft_units::Seed;

pub use outcome::Outcome;
use outcome::report;

use crate::capture::Capture;
use crate::fault::{FaultError, Plan, Scheduler};
use crate::hooks::{Advance, Hooks};
use crate::report::{Comparison, Report};
use crate::scenario::{Scenario, ScenarioError};
use crate::steps::Steps;
use crate::time::{SimSpan, SimTime};
use crate::workload::{Setting, Workload, WorkloadBuilder, WorkloadConfig, WorkloadError};
use crate::world::{BuildError, Watcher, World};

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
