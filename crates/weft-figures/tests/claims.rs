//! Figures that take seconds are made in every run of the tests: their claims hold, and their numbers are those that
//! the docs have. `BLESS=1` records new ones.

use std::path::{Path, PathBuf};

use weft_figures::{Entry, Figure, Made, Recorded, Results, Runner, entries};
use weft_sim::experiment::{Outcome, Row, Source};
use weft_testkit::Value;

#[path = "../../weft-plan/benches/placements/measure.rs"]
mod placements;

/// Measures a figure that is a bench's.
type Measure = fn() -> Vec<Value>;

const BENCHES: [(&str, Measure); 3] = [
    ("astral-fig7a", placements::figure_7a),
    ("astral-fig7b", placements::figure_7b),
    ("astral-fig7c", placements::figure_7c),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The rows of a figure, made now.
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
            experiment.judge(rows).unwrap().rows
        }
        Source::Missing(_) => panic!("{} cannot be had", figure.name),
    }
}

/// Four digits of every number: enough to see a change, and not the last bit of another processor's division.
fn digits(rows: &[Row]) -> Vec<String> {
    let numbers = |row: &Row| {
        row.measured.iter().map(|(name, value)| format!("{name} {value:.3e}")).collect::<Vec<_>>()
    };
    rows.iter().map(|row| format!("{:?}: {}", row.at, numbers(row).join(", "))).collect()
}

#[test]
fn figures_that_take_seconds_are_as_published() {
    let root = root();
    let mut results = Results::read(&root).unwrap();
    let quick = entries(&root).unwrap();
    let quick: Vec<Entry> =
        quick.into_iter().filter(|entry| entry.figure.experiment.in_tests).collect();
    assert!(quick.len() >= BENCHES.len());
    for Entry { figure, recorded, .. } in quick {
        let rows = rows(&figure);
        let findings = figure.experiment.judge_related(rows.clone()).unwrap();
        let broken: Vec<&Outcome> =
            findings.claims.iter().filter(|claim| !claim.as_stated()).collect();
        assert!(broken.is_empty(), "{}: {broken:#?}", figure.name);
        if std::env::var_os("BLESS").is_some() {
            let command = format!("weft experiment run {}", figure.name);
            let made = recorded.map_or_else(|| Made { command, ..Made::default() }, |old| old.made);
            let published = String::new();
            results.record(&figure.name, Recorded { made, published, rows: rows.clone() });
            results.write(&root).unwrap();
            continue;
        }
        let published = recorded.map(|recorded| recorded.rows).unwrap_or_default();
        let again = format!("{}: weft experiment run {0} --record", figure.name);
        assert_eq!(digits(&rows), digits(&published), "{again}");
    }
}
