//! An experiment's findings for people.

use std::collections::BTreeMap;

use weft_report::{
    Axis as PlotAxis, BarPlot, Body, Cell, Column, LinePlot, Report, Section, Series, Table, Unit,
};
use weft_sim::experiment::{Experiment, Findings, Measure, Outcome, Row};

use crate::output::render;

type Done = (String, Experiment, Findings);

/// What a terminal shows of one experiment.
pub(super) fn text((_, experiment, findings): &Done) -> String {
    let Experiment { title, source, paper, differs, .. } = experiment;
    let mut text = format!("{title} ({source})\n\nThe paper: {paper}\n\n");
    text += &format!("{}\n", render(&rows(experiment, findings)));
    if !findings.claims.is_empty() {
        text += &format!("{}\n", render(&claims(findings)));
    }
    text + &format!("Where we differ: {differs}\n")
}

/// The page of some experiments.
pub(super) fn page(done: &[Done]) -> Report {
    let names: Vec<&str> = done.iter().map(|(name, ..)| name.as_str()).collect();
    let claims = || done.iter().flat_map(|(.., findings)| &findings.claims);
    let holding = claims().filter(|claim| claim.holds).count();
    let known = claims().filter(|claim| claim.as_stated() && claim.differs).count();
    Report {
        title: match done {
            [(_, experiment, _)] => experiment.title.clone(),
            _ => "Experiments".into(),
        },
        subtitle: format!("weft experiment run {}", names.join(" ")),
        facts: vec![
            ("claims that hold".into(), format!("{holding} of {}", claims().count())),
            ("of the others, explained".into(), known.to_string()),
            ("version".into(), env!("CARGO_PKG_VERSION").into()),
        ],
        sections: done.iter().flat_map(sections).collect(),
    }
}

fn sections((_, experiment, findings): &Done) -> Vec<Section> {
    let section =
        |heading: &str, text: String, body| Section { heading: heading.into(), text, body };
    let paper = format!("The paper: {} Where we differ: {}", experiment.paper, experiment.differs);
    let heading = format!("{}: {}", experiment.source, experiment.title);
    let mut sections = vec![section(&heading, paper, Body::Table(rows(experiment, findings)))];
    for measure in &experiment.measures {
        sections.push(section(&label(measure), String::new(), plot(experiment, measure, findings)));
    }
    if !findings.claims.is_empty() {
        sections.push(section("Claims", String::new(), Body::Table(claims(findings))));
    }
    sections
}

/// One row for each point: what varied, what was measured.
pub(super) fn rows(experiment: &Experiment, findings: &Findings) -> Table {
    let axes = experiment.axes.iter().map(|axis| Column::text(&axis.name, &axis.name));
    let measures = experiment.measures.iter();
    let measures = measures.map(|measure| Column::number(label(measure), &measure.name));
    let mut table = Table::new(axes.chain(measures).collect());
    for row in &findings.rows {
        let at = experiment.axes.iter().map(|axis| Cell::from(at(row, &axis.name)));
        let measured = experiment.measures.iter().map(|measure| match measured(row, measure) {
            Some(value) => Cell::new(number(value) + &spread(row, measure), value),
            None => Cell::missing(),
        });
        table.push(at.chain(measured).collect());
    }
    table
}

fn claims(findings: &Findings) -> Table {
    let mut table = Table::new(vec![
        Column::text("", "holds"),
        Column::text("claim", "claim"),
        Column::number("measured", "left"),
        Column::text("", "comparison"),
        Column::number("wanted", "right"),
        Column::text("the paper", "paper"),
    ]);
    for claim in &findings.claims {
        table.push(vec![
            Cell::new(sign(claim), claim.holds),
            claim.text.clone().into(),
            Cell::new(number(claim.left), claim.left),
            claim.comparison.to_string().into(),
            Cell::new(number(claim.right), claim.right),
            claim.paper.clone().into(),
        ]);
    }
    table
}

/// It holds, is known to differ from the paper, or is not as the file says.
fn sign(claim: &Outcome) -> &'static str {
    match (claim.as_stated(), claim.differs) {
        (true, false) => "✓",
        (true, true) => "≠",
        (false, _) => "✗",
    }
}

/// Lines over the first axis when its values are numbers, else bars; one series for each
/// combination of the other axes.
fn plot(experiment: &Experiment, measure: &Measure, findings: &Findings) -> Body {
    let Some(axis) = experiment.axes.first() else {
        let value = findings.rows.first().and_then(|row| measured(row, measure));
        return bars(
            measure,
            vec![measure.name.clone()],
            vec![(String::new(), vec![value.unwrap_or(f64::NAN)])],
        );
    };
    let others = |row: &Row| {
        let parts = experiment.axes[1..].iter().map(|axis| at(row, &axis.name));
        parts.collect::<Vec<_>>().join(", ")
    };
    // In the order of the file, not of the alphabet.
    let mut names: Vec<String> = vec![];
    let mut points: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
    for row in &findings.rows {
        let name = others(row);
        if !names.contains(&name) {
            names.push(name.clone());
        }
        let value = measured(row, measure).unwrap_or(f64::NAN);
        points.entry(name).or_default().push((at(row, &axis.name), value));
    }
    let all = || points.values().flatten();
    if all().all(|(x, _)| numeric(x).is_some()) && all().count() > 2 * names.len() {
        let x = PlotAxis::new(&axis.name, Unit::Count);
        let series = names.iter().map(|name| line(name, &points[name]));
        let y = PlotAxis::new(label(measure), Unit::Ratio);
        return Body::Lines(LinePlot { x, y, series: series.collect(), marks: vec![] });
    }
    let first = names.first().map(|name| &points[name]);
    let groups = first.into_iter().flatten().map(|(x, _)| x.clone()).collect();
    let values = |name: &String| points[name].iter().map(|(_, y)| *y).collect();
    bars(measure, groups, names.iter().map(|name| (name.clone(), values(name))).collect())
}

fn numeric(text: &str) -> Option<f64> {
    text.parse().ok()
}

fn line(name: &str, points: &[(String, f64)]) -> Series {
    let points = points.iter().filter_map(|(x, y)| Some((numeric(x)?, *y)));
    Series::new(name, points.collect())
}

fn bars(measure: &Measure, groups: Vec<String>, series: Vec<(String, Vec<f64>)>) -> Body {
    Body::Bars(BarPlot { y: PlotAxis::new(label(measure), Unit::Ratio), groups, series })
}

fn at(row: &Row, axis: &str) -> String {
    row.at.get(axis).cloned().unwrap_or_default()
}

fn measured(row: &Row, measure: &Measure) -> Option<f64> {
    row.measured.get(&measure.name).copied()
}

/// ` ±0.1` after a mean of several seeds.
fn spread(row: &Row, measure: &Measure) -> String {
    let spread = row.spread.get(&measure.name);
    spread.map_or_else(String::new, |half_width| format!(" ±{}", Unit::Ratio.format(*half_width)))
}

fn label(measure: &Measure) -> String {
    match measure.unit.as_str() {
        "" => measure.name.clone(),
        unit => format!("{} ({unit})", measure.name),
    }
}

/// Three digits, but a share near one keeps what makes it differ from one.
fn number(value: f64) -> String {
    if (0.9..1.0).contains(&value) { format!("{value:.4}") } else { Unit::Ratio.format(value) }
}
