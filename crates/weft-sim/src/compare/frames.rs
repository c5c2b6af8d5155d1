//! The results of runs and comparisons as rows, for CSV, Parquet and Arrow.

use weft_report::{Frame, Values};

use super::{Estimate, METRICS, Row, Summary};
use crate::report::FlowLine;

/// Returns one row for each cell: each metric's mean over the seeds and half its confidence interval.
pub fn rows(rows: &[Row]) -> Frame {
    let mut columns = cell_columns(rows, |_| 1);
    let estimates = |value: &dyn Fn(&Row) -> Option<Estimate>, key: &str| {
        let all: Vec<_> = rows.iter().map(value).collect();
        let mean =
            |estimate: &Option<Estimate>| estimate.map_or(f64::NAN, |estimate| estimate.mean);
        let half = |estimate: &Option<Estimate>| {
            estimate.and_then(|estimate| estimate.half_width).unwrap_or(f64::NAN)
        };
        [
            (key.to_owned(), Values::Real(all.iter().map(mean).collect())),
            (format!("{key}_half_width"), Values::Real(all.iter().map(half).collect())),
        ]
    };
    for metric in METRICS {
        columns.extend(estimates(&|row| row.metrics.get(metric.key).copied(), metric.key));
    }
    columns.extend(estimates(&|row| row.over_first, "slowdown_over_first"));
    Frame::new(columns)
}

/// Returns one row for each run.
pub fn runs(rows: &[Row]) -> Frame {
    let mut columns = cell_columns(rows, |row| row.runs.len());
    let runs = || rows.iter().flat_map(|row| &row.runs);
    columns.push(("seed".into(), Values::Whole(runs().map(|run| as_signed(run.seed)).collect())));
    for metric in METRICS {
        let value = |run: &Summary| run.metrics.get(metric.key).copied().unwrap_or(f64::NAN);
        columns.push((metric.key.into(), Values::Real(runs().map(value).collect())));
    }
    Frame::new(columns)
}

/// Returns one row for each flow.
pub fn flows(rows: &[Row]) -> Frame {
    let count = |row: &Row| row.runs.iter().map(|run| run.flows.len()).sum();
    let mut columns = cell_columns(rows, count);
    let runs = || rows.iter().flat_map(|row| &row.runs);
    let seeds = runs().flat_map(|run| run.flows.iter().map(|_| as_signed(run.seed)));
    columns.push(("seed".into(), Values::Whole(seeds.collect())));
    columns.extend(flow_columns(|| runs().flat_map(|run| &run.flows)));
    Frame::new(columns)
}

/// Returns one row for each of a run's flows.
pub fn flows_of_run(flows: &[FlowLine]) -> Frame {
    Frame::new(flow_columns(|| flows.iter()).into())
}

fn flow_columns<'a, I: Iterator<Item = &'a FlowLine>>(
    flows: impl Fn() -> I,
) -> [(String, Values); 9] {
    let wholes = |key: &str, value: fn(&FlowLine) -> i64| {
        (key.to_owned(), Values::Whole(flows().map(value).collect()))
    };
    let reals = |key: &str, value: fn(&FlowLine) -> f64| {
        (key.to_owned(), Values::Real(flows().map(value).collect()))
    };
    [
        wholes("workload", |flow| flow.workload.into()),
        wholes("tag", |flow| as_signed(flow.tag)),
        wholes("source", |flow| flow.source.into()),
        wholes("destination", |flow| flow.destination.into()),
        wholes("bytes", |flow| flow.bytes.into()),
        reals("start_us", |flow| flow.start_us),
        reals("delivered_us", |flow| flow.delivered_us),
        reals("acknowledged_us", |flow| flow.acknowledged_us),
        reals("slowdown", |flow| flow.slowdown),
    ]
}

/// Returns the columns that identify a row's cell; the values of a row are repeated `times(row)` times.
fn cell_columns(rows: &[Row], times: impl Fn(&Row) -> usize) -> Vec<(String, Values)> {
    let repeated = || rows.iter().flat_map(|row| std::iter::repeat_n(&row.cell, times(row)));
    let topologies = repeated().map(|cell| cell.topology.clone().unwrap_or_default());
    let loads = repeated().map(|cell| cell.load.unwrap_or(f64::NAN));
    let balancers = repeated().map(|cell| cell.balancer.clone());
    vec![
        ("topology".into(), Values::Text(topologies.collect())),
        ("load".into(), Values::Real(loads.collect())),
        ("balancer".into(), Values::Text(balancers.collect())),
    ]
}

/// Returns the same 64 bits as a signed number: seeds and tags use all of them.
fn as_signed(number: u64) -> i64 {
    number.cast_signed()
}
