//! The table of a comparison, as text.

use weft_report::{Cell, Column, Table};
use weft_sim::compare::{Estimate, METRICS, Metric, Row, Show, Shown};

use super::Comparison;

/// The explanation of ± and of "over".
pub(super) const INTERVAL: &str = "± is half of the 95 % confidence interval of the mean over the \
                                   seeds (Student's t). \"over\" is the mean slowdown over the \
                                   first balancer's, seed by seed.";

/// Returns one row for each balancer at each load on each network.
pub(super) fn rows(comparison: &Comparison) -> Table {
    let shown: Vec<&Metric> =
        METRICS.iter().filter(|metric| is_shown(metric, &comparison.rows)).collect();
    let places = places(comparison);
    let mut columns: Vec<Column> =
        places.iter().map(|(heading, ..)| Column::text(*heading, *heading)).collect();
    columns.push(Column::text("balancer", "balancer"));
    let several = comparison.plan.variants.len() > 1;
    let over = format!("over {}", comparison.plan.variants[0].name);
    for metric in &shown {
        columns.push(Column::number(metric.heading, metric.key));
        if several && metric.key == "slowdown_mean" {
            columns.push(Column::number(&over, "over_first"));
        }
    }
    let mut table = Table::new(columns);
    for row in &comparison.rows {
        let mut cells: Vec<Cell> = places.iter().map(|(_, place)| place(row).into()).collect();
        cells.push(row.cell.balancer.clone().into());
        for metric in &shown {
            // For counts and shares the table shows only the mean.
            let narrow = matches!(metric.show, Show::Percent | Show::Decimals(0));
            let estimate = row.metrics.get(metric.key).copied();
            let estimate = estimate.map(|estimate| Estimate {
                half_width: estimate.half_width.filter(|_| !narrow),
                ..estimate
            });
            cells.push(cell(estimate.as_ref(), |value| metric.text(value)));
            if several && metric.key == "slowdown_mean" {
                cells.push(cell(row.over_first.as_ref(), |value| format!("{value:.3}")));
            }
        }
        table.push(cells);
    }
    table
}

type Place = (&'static str, fn(&Row) -> String);

/// Returns the columns of the axes that vary, besides the balancer.
fn places(comparison: &Comparison) -> Vec<Place> {
    let topology: Place = ("topology", |row| row.cell.topology.clone().unwrap_or_default());
    let load: Place =
        ("load", |row| row.cell.load.map_or_else(String::new, |load| load.to_string()));
    let mut places = vec![];
    if !comparison.plan.topologies.is_empty() {
        places.push(topology);
    }
    if !comparison.plan.loads.is_empty() {
        places.push(load);
    }
    places
}

/// Returns `true` if the metric's column carries information.
fn is_shown(metric: &Metric, rows: &[Row]) -> bool {
    let mut values = rows.iter().filter_map(|row| row.metrics.get(metric.key));
    match metric.shown {
        Shown::Always => values.next().is_some(),
        Shown::IfAny => values.any(|estimate| estimate.mean != 0.0),
        Shown::Never => false,
    }
}

fn cell(estimate: Option<&Estimate>, text: impl Fn(f64) -> String) -> Cell {
    match estimate {
        None => Cell::missing(),
        Some(Estimate { mean, half_width: None }) => Cell::new(text(*mean), *mean),
        Some(Estimate { mean, half_width: Some(half) }) => {
            Cell::new(format!("{} ±{}", text(*mean), text(*half)), *mean)
        }
    }
}

/// Returns slowdown by size, mean and 99th percentile, one row for each balancer.
pub(super) fn by_size(rows: &[&Row]) -> Table {
    let mut columns = vec![Column::text("balancer", "balancer")];
    let bins = rows.first().map_or(&[][..], |row| &row.by_size);
    columns.extend(bins.iter().map(|bin| {
        let name = bin_name(bin.up_to_bytes);
        Column::number(&name, &name)
    }));
    let mut table = Table::new(columns);
    for row in rows.iter().filter(|row| row.by_size.len() == bins.len()) {
        let bins = row.by_size.iter().map(|bin| {
            Cell::new(format!("{:.2} / {:.2}", bin.mean.mean, bin.p99.mean), bin.mean.mean)
        });
        table.push([row.cell.balancer.clone().into()].into_iter().chain(bins).collect());
    }
    table
}

/// Returns the name of a size bin, from its upper end.
pub(super) fn bin_name(up_to_bytes: Option<u64>) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let text = |bytes: u64| weft_report::Unit::Bytes.format(bytes as f64);
    up_to_bytes.map_or_else(|| "larger".to_owned(), |bytes| format!("≤ {}", text(bytes)))
}
