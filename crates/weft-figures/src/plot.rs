//! Plots of a figure's measure that show the paper's numbers beside Weft's.

use std::collections::BTreeMap;

use weft_report::{Axis as PlotAxis, BarPlot, Body, LinePlot, Series, Unit};
use weft_sim::experiment::{Experiment, Findings, Measure, Row};

use crate::tables::{at, is_compared, label, measured, paper};

/// The series in the order of the file, each with its positions and values.
#[derive(Default)]
struct Collected {
    names: Vec<String>,
    points: BTreeMap<String, Vec<(String, f64)>>,
}

impl Collected {
    fn push(&mut self, name: String, place: String, value: f64) {
        if !self.names.contains(&name) {
            self.names.push(name.clone());
        }
        self.points.entry(name).or_default().push((place, value));
    }
}

/// Returns lines over the first axis if its values are numbers and a series has more than two points on average, else
/// bars. There is one series for each combination of the other axes, and another for the paper's numbers of each.
pub(crate) fn plot(experiment: &Experiment, measure: &Measure, findings: &Findings) -> Body {
    let all = collect(experiment, measure, findings);
    let points = || all.points.values().flatten();
    let first = experiment.axes.first().map_or("", |axis| &axis.name);
    let y = PlotAxis::new(label(measure), Unit::Ratio);
    if points().all(|(x, _)| numeric(x).is_some()) && points().count() > 2 * all.names.len() {
        let x = PlotAxis::new(first, Unit::Count);
        let series = all.names.iter().map(|name| line(name, &all.points[name]));
        return Body::Lines(LinePlot { x, y, series: series.collect(), marks: vec![] });
    }
    let groups = all.names.first().map(|name| &all.points[name]);
    let groups = groups.into_iter().flatten().map(|(place, _)| place.clone()).collect();
    let values = |name: &String| all.points[name].iter().map(|(_, value)| *value).collect();
    let series = all.names.iter().map(|name| (name.clone(), values(name))).collect();
    Body::Bars(BarPlot { y, groups, series })
}

fn collect(experiment: &Experiment, measure: &Measure, findings: &Findings) -> Collected {
    let (first, others) = match experiment.axes.split_first() {
        Some((first, others)) => (first.name.as_str(), others),
        None => ("", [].as_slice()),
    };
    let name = |row: &Row| {
        let parts = others.iter().map(|axis| at(row, &axis.name));
        parts.collect::<Vec<_>>().join(", ")
    };
    let mut all = Collected::default();
    for row in &findings.rows {
        all.push(name(row), at(row, first), measured(row, measure).unwrap_or(f64::NAN));
    }
    if is_compared(experiment, measure) {
        for row in &findings.rows {
            let name = [name(row), "the paper".into()].into_iter().filter(|part| !part.is_empty());
            let value = paper(experiment, row, measure).unwrap_or(f64::NAN);
            all.push(name.collect::<Vec<_>>().join(", "), at(row, first), value);
        }
    }
    all
}

fn numeric(text: &str) -> Option<f64> {
    text.parse().ok()
}

fn line(name: &str, points: &[(String, f64)]) -> Series {
    let points = points.iter().filter_map(|(x, y)| Some((numeric(x)?, *y)));
    Series::new(name, points.collect())
}
