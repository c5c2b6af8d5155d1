//! The results of a comparison: a summary of each run, and estimates over the seeds of each cell.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::{Cell, Estimate, METRICS};
use crate::measure::{Distribution, binned};
use crate::report::{FlowLine, Report};
use crate::scenario::Scenario;
use crate::workload::Iteration;

/// Number of quantiles that represent a run's distribution of slowdowns; the last is its maximum.
const QUANTILES: usize = 2_000;

/// The summary of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The run's seed.
    pub seed: u64,
    /// The run's metrics, by key.
    #[serde(flatten)]
    pub metrics: BTreeMap<&'static str, f64>,
    /// The slowdown in each size bin.
    #[serde(skip)]
    pub bins: Vec<Distribution>,
    /// The quantiles of the slowdown, evenly spaced.
    #[serde(skip)]
    pub quantiles: Vec<f64>,
    /// Every counted flow, if requested.
    #[serde(skip)]
    pub flows: Vec<FlowLine>,
}

/// One size bin over the seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bin {
    /// The largest flow, bytes; `None` for the last bin, which has no upper end.
    pub up_to_bytes: Option<u64>,
    /// Number of flows of all seeds.
    pub flows: usize,
    /// The mean slowdown.
    pub mean: Estimate,
    /// The 99th percentile of the slowdown.
    pub p99: Estimate,
}

/// The results of one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The combination.
    #[serde(flatten)]
    pub cell: Cell,
    /// Each metric over the seeds, by key.
    pub metrics: BTreeMap<&'static str, Estimate>,
    /// The ratio of the mean slowdown to that of the first balancer with the same seed, which had the same arrivals.
    pub over_first: Option<Estimate>,
    /// Slowdown by size, for bins that have flows.
    pub by_size: Vec<Bin>,
    /// The quantiles of the slowdown, evenly spaced, each the mean of the seeds'.
    #[serde(skip)]
    pub quantiles: Vec<f64>,
    /// Each seed's run.
    pub runs: Vec<Summary>,
}

impl Summary {
    /// Returns the summary of a run; it keeps every flow only if `keep_flows` is set.
    pub fn new(scenario: &Scenario, mut report: Report, keep_flows: bool) -> Self {
        let warm_up_us = scenario.measure.warm_up.as_micros_f64();
        let mut flows = std::mem::take(&mut report.flows);
        flows.retain(|flow| flow.start_us >= warm_up_us);
        let edges: Vec<u64> = scenario.measure.size_bins.iter().map(|bin| bin.0).collect();
        let sized = flows.iter().map(|flow| (u64::from(flow.bytes), flow.slowdown));
        let bins = binned(sized, &edges);
        let mut slowdowns: Vec<f64> = flows.iter().map(|flow| flow.slowdown).collect();
        let metrics = metrics(&report, &flows, &mut slowdowns);
        if !keep_flows {
            flows = Vec::new();
        }
        Self { seed: report.seed, metrics, bins, quantiles: quantiles(&slowdowns), flows }
    }
}

/// Returns every metric of the run, and sorts the slowdowns.
fn metrics(
    report: &Report,
    flows: &[FlowLine],
    slowdowns: &mut [f64],
) -> BTreeMap<&'static str, f64> {
    let took = |flow: &FlowLine| flow.acknowledged_us - flow.start_us;
    let all = || report.workloads.iter();
    let rounds = all().flat_map(|workload| workload.iterations.iter().map(|done| done.time_us));
    let mut rounds: Vec<f64> = rounds.collect();
    let mut value = json!({
        "slowdown": Distribution::of(slowdowns),
        "fct_us": Distribution::of(&mut flows.iter().map(took).collect::<Vec<_>>()),
        "unfinished": all().map(|workload| workload.flows.started - workload.flows.finished).sum::<u64>(),
        "marked": report.network.marked,
        "lost": report.network.lost.values().sum::<u64>(),
        "transport": report.transport,
        "ports": report.ports,
        "uplink_queue_p99_bytes": report.queues.get("leaf-up").map(|queue| queue.p99_bytes),
        "reordering": report.reordering,
    });
    if !rounds.is_empty() {
        value["rounds"] = json!(Distribution::of(&mut rounds));
        value["training_ms"] = json!(training_us(report) / 1e3);
    }
    let step = |value: &Value, part: &str| value.get(part).cloned();
    let read = |path: &str| path.split('.').try_fold(value.clone(), |at, part| step(&at, part));
    let found =
        METRICS.iter().filter_map(|metric| Some((metric.key, read(metric.value)?.as_f64()?)));
    found.collect()
}

/// Returns the time from the first collective's start to the last one's end, the longest of the workloads,
/// microseconds.
fn training_us(report: &Report) -> f64 {
    let length = |rounds: &[Iteration]| match (rounds.first(), rounds.last()) {
        (Some(first), Some(last)) => last.start_us + last.time_us - first.start_us,
        _ => 0.0,
    };
    let lengths = report.workloads.iter().map(|workload| length(&workload.iterations));
    lengths.fold(0.0, f64::max)
}

/// Returns [`QUANTILES`] evenly spaced quantiles of sorted values; none of an empty slice.
fn quantiles(sorted: &[f64]) -> Vec<f64> {
    let steps = if sorted.is_empty() { 0 } else { QUANTILES };
    (1..=steps).map(|step| sorted[(step * sorted.len()).div_ceil(QUANTILES) - 1]).collect()
}

impl Row {
    /// Returns the row of a cell's runs. `first` are the runs of the first balancer on the same network at the same
    /// load; `None` in the row of that balancer.
    pub fn new(
        cell: Cell,
        scenario: &Scenario,
        runs: Vec<Summary>,
        first: Option<&[Summary]>,
    ) -> Self {
        let of_each = |value: &dyn Fn(&Summary) -> Option<f64>| {
            Estimate::of(&runs.iter().filter_map(value).collect::<Vec<_>>())
        };
        let metric =
            |key: &'static str| Some((key, of_each(&|run| run.metrics.get(key).copied())?));
        let metrics = METRICS.iter().filter_map(|row| metric(row.key)).collect();
        let mean = |run: &Summary| run.metrics.get("slowdown_mean").copied().unwrap_or(f64::NAN);
        let over = first.map(|first| {
            runs.iter().zip(first).map(|(run, first)| mean(run) / mean(first)).collect::<Vec<_>>()
        });
        let steps = runs.iter().map(|run| run.quantiles.len()).min().unwrap_or(0);
        let quantile = |step: usize| of_each(&|run| run.quantiles.get(step).copied());
        let quantiles = (0..steps).filter_map(quantile).map(|estimate| estimate.mean).collect();
        let edges = scenario.measure.size_bins.iter().map(|bin| Some(bin.0)).chain([None]);
        let by_size = edges.enumerate().filter_map(|(index, up_to_bytes)| {
            let filled = |run: &&Summary| run.bins[index].count > 0;
            let of = |value: fn(&Distribution) -> f64| {
                let values = runs.iter().filter(filled).map(|run| value(&run.bins[index]));
                Estimate::of(&values.collect::<Vec<_>>())
            };
            let flows = runs.iter().map(|run| run.bins[index].count).sum();
            Some(Bin { up_to_bytes, flows, mean: of(|bin| bin.mean)?, p99: of(|bin| bin.p99)? })
        });
        let by_size = by_size.collect();
        let over_first = over.and_then(|values| Estimate::of(&values));
        Self { cell, metrics, over_first, by_size, quantiles, runs }
    }
}
