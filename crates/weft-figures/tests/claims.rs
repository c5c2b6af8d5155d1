//! Reproduction of the figures that take seconds: their claims hold, and their numbers are those in the docs. For a
//! longer figure the test makes only the runs that its `in_tests` names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use weft_figures::{Entry, Figure, Runner, entries};
use weft_sim::experiment::{Experiment, Outcome, Row, Source};
use weft_testkit::Value;

#[path = "../../weft-plan/benches/placements/measure.rs"]
mod placements;

/// A function that measures the rows of a bench's figure.
type Measure = fn() -> Vec<Value>;

const BENCHES: [(&str, Measure); 3] = [
    ("astral-fig7a", placements::figure_7a),
    ("astral-fig7b", placements::figure_7b),
    ("astral-fig7c", placements::figure_7c),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Measures the rows of a figure, or of the part that tests cover.
fn rows(figure: &Figure) -> Vec<Row> {
    let experiment = &figure.experiment;
    match experiment.source() {
        Source::Simulated => {
            let workers = std::thread::available_parallelism().map_or(1, usize::from);
            let (recorded, _) = Runner::new(workers).run(figure, |_, _| ()).unwrap().unwrap();
            recorded.rows
        }
        Source::Bench(_) => {
            let bench = BENCHES.iter().find(|(name, _)| *name == figure.name);
            let (_, measure) = bench.unwrap_or_else(|| panic!("{}: no bench here", figure.name));
            let rows = experiment.measure_rows(&measure()).unwrap();
            experiment.evaluate(rows).unwrap().rows
        }
        Source::Missing(_) => panic!("{} cannot be reproduced here", figure.name),
    }
}

/// Returns every number with four digits: enough to show a change, and too few to show the rounding of another
/// processor's division.
fn digits(rows: &[Row]) -> Vec<String> {
    let numbers = |row: &Row| {
        row.measured.iter().map(|(name, value)| format!("{name} {value:.3e}")).collect::<Vec<_>>()
    };
    rows.iter().map(|row| format!("{:?}: {}", row.at, numbers(row).join(", "))).collect()
}

/// Measures a figure's part for tests and compares it with its claims and with the published rows. Returns the command
/// that records it again, with both rows, if they differ.
fn check(entry: &Entry, part: Experiment) -> Option<String> {
    let whole = &entry.figure.experiment;
    let name = &entry.figure.name;
    let figure = Figure { experiment: part, ..entry.figure.clone() };
    let rows = rows(&figure);
    let findings = figure.experiment.evaluate_related(rows.clone()).unwrap();
    let broken: Vec<&Outcome> = findings.claims.iter().filter(|claim| !claim.as_stated()).collect();
    assert!(broken.is_empty(), "{name}: {broken:#?}");
    let published = entry.recorded.as_ref().map(|recorded| whole.rows_in_tests(&recorded.rows));
    let (here, published) = (digits(&rows), digits(&published.unwrap_or_default()));
    (here != published).then(|| {
        format!(
            "weft experiment run {name} --record\nhere:      {here:?}\npublished: {published:?}"
        )
    })
}

#[test]
fn figures_that_take_seconds_are_as_published() {
    let mut papers = BTreeSet::new();
    let mut benches = 0;
    let mut differ = Vec::new();
    for entry in entries(&root()).unwrap() {
        let Some(part) = entry.figure.experiment.in_tests() else { continue };
        benches += usize::from(matches!(part.source(), Source::Bench(_)));
        differ.extend(check(&entry, part));
        papers.extend(entry.figure.paper().map(|paper| paper.name));
    }
    assert!(differ.is_empty(), "figures that are not as published:\n{}", differ.join("\n"));
    assert_eq!(benches, BENCHES.len(), "every bench here belongs to a figure that tests make");
    assert!(papers.is_superset(&BTreeSet::from(["stellar", "astral", "hopper"])), "{papers:?}");
}
