//! The HTML page of a comparison.

use weft_report::{
    Axis, Body, CdfPlot, Column, OrdinalPlot, PercentilePlot, Report, Section, Series, Table, Unit,
};
use weft_sim::compare::{Bin, Estimate, Row};

use super::{Comparison, headline, table};

pub(super) fn page(comparison: &Comparison) -> Report {
    let mut sections =
        vec![section("Comparison", interval(comparison), Body::Table(table::rows(comparison)))];
    sections.extend(by_load(comparison));
    let balancers = comparison.plan.variants.len().max(1);
    for cell in comparison.rows.chunks(balancers) {
        sections.extend(cell_sections(&cell.iter().collect::<Vec<_>>()));
    }
    sections.push(section("Balancers", "What each changes.", Body::Table(variants(comparison))));
    let text = "With the seeds and the balancers above, all that decides the runs.";
    sections.push(section("Scenario", text, Body::Code(comparison.plan.scenario.to_string())));
    let title = if comparison.name.is_empty() { "Comparison" } else { &comparison.name };
    let seeds = &comparison.plan.seeds;
    let seeds = match (seeds.first(), seeds.last()) {
        (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
        (first, _) => first.map_or_else(String::new, ToString::to_string),
    };
    Report {
        title: title.to_owned(),
        subtitle: if comparison.about.is_empty() {
            headline(comparison)
        } else {
            comparison.about.clone()
        },
        facts: vec![
            ("runs".into(), comparison.plan.runs().to_string()),
            ("seeds".into(), seeds),
            ("version".into(), env!("CARGO_PKG_VERSION").into()),
        ],
        sections,
    }
}

fn section(heading: impl Into<String>, text: impl Into<String>, body: Body) -> Section {
    Section { heading: heading.into(), text: text.into(), body }
}

fn interval(comparison: &Comparison) -> &'static str {
    if comparison.plan.seeds.len() > 1 { table::INTERVAL } else { "" }
}

/// Returns the plots of slowdown over load, one for each network.
fn by_load(comparison: &Comparison) -> Vec<Section> {
    let loads = comparison.plan.loads.len();
    if loads < 2 {
        return vec![];
    }
    let plots = comparison.rows.chunks(loads * comparison.plan.variants.len()).flat_map(|rows| {
        let of = |key: &'static str, what: &str| {
            let names = comparison.plan.variants.iter().map(|variant| variant.name.as_str());
            let plot = Body::Ordinal(OrdinalPlot {
                x: "load".into(),
                places: comparison
                    .plan
                    .loads
                    .iter()
                    .map(|&load| Unit::Share.format(load))
                    .collect(),
                y: Axis::new("slowdown", Unit::Ratio),
                series: names.map(|name| (name.to_owned(), over_loads(rows, name, key))).collect(),
            });
            section(format!("{what} by load{}", on(&rows[0])), WHISKERS, plot)
        };
        [of("slowdown_mean", "Mean slowdown"), of("slowdown_p99", "99th percentile of slowdown")]
    });
    plots.collect()
}

/// Returns one balancer's metric at each load, in the order of the options.
fn over_loads(rows: &[Row], balancer: &str, key: &'static str) -> Vec<(f64, f64)> {
    let rows = rows.iter().filter(|row| row.cell.balancer == balancer);
    rows.map(|row| point(row.metrics.get(key).copied())).collect()
}

/// Returns a value and its whisker.
fn point(estimate: Option<Estimate>) -> (f64, f64) {
    estimate.map_or((f64::NAN, 0.0), |estimate| (estimate.mean, estimate.half_width.unwrap_or(0.0)))
}

const WHISKERS: &str = "Whiskers are confidence intervals over the seeds.";

fn on(row: &Row) -> String {
    row.cell.topology.as_ref().map_or_else(String::new, |topology| format!(", {topology}"))
}

/// Returns the plots of one load on one network.
fn cell_sections(rows: &[&Row]) -> Vec<Section> {
    let load = rows[0].cell.load.map_or_else(String::new, |load| format!(", load {load}"));
    let place = format!("{load}{}", on(rows[0]));
    let heading = |text: &str| format!("{text}{place}");
    let sized = |value: fn(&Bin) -> Estimate| Body::Ordinal(sizes(rows, value));
    vec![
        section(heading("Mean slowdown by flow size"), WHISKERS, sized(|bin| bin.mean)),
        section(
            heading("99th percentile of slowdown by flow size"),
            WHISKERS,
            sized(|bin| bin.p99),
        ),
        section(
            heading("Slowdown by flow size"),
            "Mean / 99th percentile.",
            Body::Table(table::by_size(rows)),
        ),
        section(
            heading("Distribution of slowdown"),
            "All flows; quantiles are means over the seeds.",
            Body::Cdf(CdfPlot {
                x: Axis::new("slowdown", Unit::Ratio),
                samples: rows
                    .iter()
                    .map(|row| (row.cell.balancer.clone(), row.quantiles.clone()))
                    .collect(),
            }),
        ),
        section(
            heading("Tail of slowdown"),
            "Each step to the right is ten times rarer.",
            Body::Percentiles(PercentilePlot {
                y: Axis::new("slowdown", Unit::Ratio),
                series: rows.iter().map(|row| tail(row)).collect(),
            }),
        ),
    ]
}

fn sizes(rows: &[&Row], value: fn(&Bin) -> Estimate) -> OrdinalPlot {
    let mut ends: Vec<Option<u64>> =
        rows.iter().flat_map(|row| row.by_size.iter().map(|bin| bin.up_to_bytes)).collect();
    ends.sort_by_key(|end| end.unwrap_or(u64::MAX));
    ends.dedup();
    let of_row = |row: &&Row| {
        let at = |end: &Option<u64>| {
            let bin = row.by_size.iter().find(|bin| bin.up_to_bytes == *end);
            point(bin.map(value))
        };
        (row.cell.balancer.clone(), ends.iter().map(at).collect())
    };
    OrdinalPlot {
        x: "flow size".into(),
        places: ends.iter().map(|end| table::bin_name(*end)).collect(),
        y: Axis::new("slowdown", Unit::Ratio),
        series: rows.iter().map(of_row).collect(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few thousand quantiles")]
fn tail(row: &Row) -> Series {
    let count = row.quantiles.len() as f64;
    let points = row.quantiles.iter().enumerate();
    let points = points.map(|(step, &value)| (step as f64 / count, value)).collect();
    Series::new(row.cell.balancer.clone(), points)
}

fn variants(comparison: &Comparison) -> Table {
    let columns = [("balancer", "balancer"), ("about", "about"), ("changes", "changes")];
    let mut table = Table::new(columns.map(|(name, key)| Column::text(name, key)).to_vec());
    for variant in &comparison.plan.variants {
        let changes = variant.overrides.to_string().replace('\n', " ");
        table.push(vec![
            variant.name.clone().into(),
            variant.about.clone().into(),
            changes.trim().to_owned().into(),
        ]);
    }
    table
}
