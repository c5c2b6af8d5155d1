//! `weft.experiment`: the papers' figures.

use pyo3::prelude::*;
use serde_json::{Value, json};
use weft_figures::{Entry, Figure, Runner};
use weft_report::{Cell, Column};
use weft_sim::Hooks;
use weft_sim::experiment::Source;

use super::interrupt::interruptible;
use super::table::Table;
use super::{invalid, workers};

/// Returns a row for each experiment of this folder or of the package: its name, what it measures, its source, and
/// `true` if it is simulated.
#[pyfunction]
pub(crate) fn list_experiments() -> PyResult<Table> {
    let columns = ["name", "title", "source", "simulated"];
    let mut table = weft_report::Table::new(columns.map(|key| Column::text(key, key)).to_vec());
    for file in weft_figures::files(&weft_figures::folder()) {
        let Figure { name, experiment, .. } = Figure::read(&file).map_err(in_full)?;
        let simulated = matches!(experiment.source(), Source::Simulated);
        table.push(vec![
            name.into(),
            experiment.title.clone().into(),
            experiment.source.clone().into(),
            Cell::from(if simulated { "yes" } else { "no" }),
        ]);
    }
    Ok(Table::from_cells(&table))
}

/// Runs the experiments that a name selects. `scenario` holds values that replace those of the scenario, as JSON.
/// Returns each as JSON with its rows and its claims as tables.
#[pyfunction]
pub(crate) fn run_experiment(
    py: Python<'_>,
    name: String,
    scenario: Option<String>,
    threads: Option<usize>,
) -> PyResult<Vec<(String, Table, Table)>> {
    let files = weft_figures::select(&[name]).map_err(in_full)?;
    let run = |file: &std::path::PathBuf| {
        let mut figure = Figure::read(file).map_err(in_full)?;
        if let Some(scenario) = &scenario {
            figure.experiment.scenario = serde_json::from_str(scenario).map_err(invalid)?;
        }
        let entry = interruptible(py, |cancel| {
            let hooks = Hooks { cancel, ..Hooks::default() };
            let mut runner = Runner::new(workers(threads)).with_hooks(hooks);
            let made = runner.run(&figure, |_, _| {})?;
            Entry::new(figure, made.map(|(recorded, _)| recorded))
        })?;
        entry.map(|entry| output(&entry)).map_err(in_full)
    };
    files.iter().map(run).collect()
}

fn output(entry: &Entry) -> (String, Table, Table) {
    let experiment = &entry.figure.experiment;
    let json: Value = json!({
        "name": entry.figure.name,
        "title": experiment.title,
        "source": experiment.source,
        "paper": experiment.paper,
        "differs": experiment.differs,
        "seeds": experiment.seeds,
        "verdict": entry.verdict.to_string(),
        "here": entry.here,
    });
    let empty = || weft_report::Table::new(vec![]);
    let found = entry.findings.as_ref();
    let rows = found.map_or_else(empty, |found| weft_figures::rows(experiment, found));
    let claims = found.map_or_else(empty, weft_figures::claims);
    (json.to_string(), Table::from_cells(&rows), Table::from_cells(&claims))
}

/// Returns the exception for an error with all its causes.
fn in_full(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> PyErr {
    let error = error.into();
    let causes = std::iter::successors(error.source(), |error| error.source());
    let causes = causes.map(|cause| format!(": {cause}"));
    invalid(format!("{error}{}", causes.collect::<String>()))
}
