//! The rows and claims of a figure as tables, and cells of Markdown tables.

use weft_report::{Cell, Column, Table, Unit};
use weft_sim::experiment::{Experiment, Findings, Measure, Outcome, PaperValue, Row, number};

/// Returns one row per point: the axes, the measures, and the paper's numbers where it has any.
pub fn rows(experiment: &Experiment, findings: &Findings) -> Table {
    let axes = experiment.axes.iter().map(|axis| Column::text(&axis.name, &axis.name));
    let measures = experiment.measures.iter();
    let measures = measures.map(|measure| Column::number(label(measure), &measure.name));
    let compared: Vec<&Measure> =
        experiment.measures.iter().filter(|measure| is_compared(experiment, measure)).collect();
    let papers = compared.iter().map(|measure| {
        Column::number(format!("{}, the paper", measure.name), format!("{}_paper", measure.name))
    });
    let mut table = Table::new(axes.chain(measures).chain(papers).collect());
    for row in &findings.rows {
        let at = experiment.axes.iter().map(|axis| Cell::from(at(row, &axis.name)));
        let measured = experiment.measures.iter().map(|measure| match measured(row, measure) {
            Some(value) => Cell::new(number(value) + &spread(row, measure), value),
            None => Cell::missing(),
        });
        let papers = compared.iter().map(|measure| match paper(experiment, row, measure) {
            Some(value) => Cell::new(number(value), value),
            None => Cell::missing(),
        });
        table.push(at.chain(measured).chain(papers).collect());
    }
    table
}

/// Returns the claims: the outcome of each, Weft's number, the required one, and the paper's text.
pub fn claims(findings: &Findings) -> Table {
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

/// Returns the sign of a claim's outcome: ✓ if it holds, ≠ if it differs from the paper as the file states, ✗ if it
/// contradicts the file.
pub(crate) fn sign(claim: &Outcome) -> &'static str {
    match (claim.as_stated(), claim.differs) {
        (true, false) => "✓",
        (true, true) => "≠",
        (false, _) => "✗",
    }
}

/// Returns `true` if the paper has a number of this measure.
pub(crate) fn is_compared(experiment: &Experiment, measure: &Measure) -> bool {
    experiment.values.iter().any(|value| value.measure == measure.name)
}

/// Returns the paper's number for a row: of all matching values, the one that names the most axes.
pub(crate) fn paper(experiment: &Experiment, row: &Row, measure: &Measure) -> Option<f64> {
    let fits = |value: &&PaperValue| {
        value.measure == measure.name
            && value.at.iter().all(|(axis, at)| row.at.get(axis) == Some(at))
    };
    let value = experiment.values.iter().filter(fits).max_by_key(|value| value.at.len());
    value.map(|value| value.value)
}

pub(crate) fn at(row: &Row, axis: &str) -> String {
    row.at.get(axis).cloned().unwrap_or_default()
}

pub(crate) fn measured(row: &Row, measure: &Measure) -> Option<f64> {
    row.measured.get(&measure.name).copied()
}

/// Returns the half-width of the 95 % confidence interval of a mean of several seeds, as ` ±0.1`; empty without one.
fn spread(row: &Row, measure: &Measure) -> String {
    let spread = row.spread.get(&measure.name);
    spread.map_or_else(String::new, |half_width| format!(" ±{}", Unit::Ratio.format(*half_width)))
}

pub(crate) fn label(measure: &Measure) -> String {
    match measure.unit.as_str() {
        "" => measure.name.clone(),
        unit => format!("{} ({unit})", measure.name),
    }
}

/// Returns a text as a Markdown table cell.
pub(crate) fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_one_line_without_bars() {
        assert_eq!(cell("two\n  lines | bar"), "two lines \\| bar");
    }
}
