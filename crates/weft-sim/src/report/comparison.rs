//! The error of a fast run against the exact one of the same scenario and seed.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{FlowLine, Report};
use crate::workload::Iteration;

/// Differences between quantities of a fast run and an exact one, as shares of the exact ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Errors {
    /// Number of quantities that were compared.
    pub compared: usize,
    /// The mean of the absolute errors.
    pub mean: f64,
    /// The largest absolute error.
    pub max: f64,
}

impl Errors {
    /// Returns the errors of pairs of an exact and a fast quantity.
    #[expect(clippy::cast_precision_loss, reason = "a count of flows")]
    fn of(pairs: impl Iterator<Item = (f64, f64)>) -> Self {
        let errors: Vec<f64> = pairs.map(|(exact, fast)| error(exact, fast).abs()).collect();
        let count = errors.len().max(1) as f64;
        Self {
            compared: errors.len(),
            mean: errors.iter().sum::<f64>() / count,
            max: errors.iter().copied().fold(0.0, f64::max),
        }
    }
}

/// Returns the error of a quantity.
fn error(exact: f64, fast: f64) -> f64 {
    if exact == fast { 0.0 } else { fast / exact - 1.0 }
}

/// The comparison of a fast run with the exact one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The error of the end of the run, the sum of all iterations, as a share; negative if the fast run is shorter.
    pub end: f64,
    /// The errors of the times of iterations and collectives that took place in both runs: each of the fast run with
    /// the one of the exact run that began next to it.
    pub iterations: Errors,
    /// The errors of the completion times of flows that took place in both runs, if the scenario lists flows.
    pub flows: Errors,
    /// Packet-hops of the exact run for each one of the fast run.
    pub packet_hops: f64,
}

impl Comparison {
    /// Compares a fast run with the exact one.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    pub fn new(exact: &Report, fast: &Report) -> Self {
        let workloads = || exact.workloads.iter().zip(&fast.workloads);
        let iterations = workloads().flat_map(|(exact, fast)| {
            let nearest = |of: &Iteration| nearest(&exact.iterations, of.start_us);
            fast.iterations.iter().filter_map(move |it| Some((nearest(it)?.time_us, it.time_us)))
        });
        let key = |flow: &FlowLine| (flow.workload, flow.tag, flow.source, flow.destination);
        let time = |flow: &FlowLine| flow.acknowledged_us - flow.start_us;
        let mut exact_flows: BTreeMap<_, Vec<f64>> = BTreeMap::new();
        for flow in exact.flows.iter().rev() {
            exact_flows.entry(key(flow)).or_default().push(time(flow));
        }
        let flows = fast.flows.iter().filter_map(|flow| {
            let of_key = exact_flows.get_mut(&key(flow))?;
            Some((of_key.pop()?, time(flow)))
        });
        Self {
            end: error(exact.simulated_us, fast.simulated_us),
            iterations: Errors::of(iterations),
            flows: Errors::of(flows),
            packet_hops: exact.network.packet_hops as f64 / fast.network.packet_hops.max(1) as f64,
        }
    }
}

/// Returns the iteration that began next to a time.
fn nearest(iterations: &[Iteration], start_us: f64) -> Option<&Iteration> {
    let distance = |iteration: &&Iteration| (iteration.start_us - start_us).abs();
    iterations.iter().min_by(|one, other| distance(one).total_cmp(&distance(other)))
}
