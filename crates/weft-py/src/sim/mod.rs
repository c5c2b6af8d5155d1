//! The simulator: `weft.sim` and `weft.experiment` call these functions with the text of a scenario. They run without the
//! interpreter's lock, and a signal ends them.
//!
//! | subject | file |
//! | --- | --- |
//! | tables that other packages read without a copy | `table.rs` |
//! | path policies and congestion controls written in Python | `algorithms.rs`, `policy.rs`, `control.rs`; `failure.rs`, `settings.rs` |
//! | signals | `interrupt.rs` |

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use pyo3::exceptions::{PyFileNotFoundError, PyValueError};
use pyo3::prelude::*;
use weft_figures::library;
use weft_report::{Frame, Values};
use weft_sim::compare::{CompareError, Plan, Shard, frames, resolve};
use weft_sim::{Cancel, Hooks, Report, Scenario, run_with};
use weft_units::{Seed, unknown_name};

mod algorithms;
mod control;
mod experiment;
mod failure;
mod interrupt;
mod policy;
mod settings;
mod table;

pub(crate) use algorithms::{check_congestion, check_policy};
pub(crate) use experiment::{list_experiments, run_experiment};
pub(crate) use policy::PathView;
pub(crate) use table::Table;

use algorithms::Algorithms;
use interrupt::interruptible;

/// Returns a scenario or an experiment by file or by name: the path of the file taken, and its text.
#[pyfunction]
pub(crate) fn read_scenario(name: PathBuf) -> PyResult<(String, String)> {
    let file = library::locate(&name);
    let text = library::read_to_string(&file).map_err(|error| {
        let name = name.display().to_string();
        PyFileNotFoundError::new_err(if name.contains(['/', '.']) {
            format!("{name}: {error}")
        } else {
            unknown_name("scenario", &name, &library::names())
        })
    })?;
    Ok((file.display().to_string(), text))
}

/// Returns the scenarios and experiments that are part of the package, by folder.
#[pyfunction]
pub(crate) fn built_in_names(folder: &str) -> Vec<String> {
    let files = library::toml_files(&library::built_in_folder(folder));
    files.iter().map(|file| weft_figures::stem(file)).collect()
}

/// A scenario as Python gives it.
#[derive(FromPyObject)]
pub(crate) struct Source {
    /// TOML, or JSON if `is_json`.
    #[pyo3(item)]
    text: String,
    #[pyo3(item)]
    is_json: bool,
    /// The file, for errors; the names of files in it are relative to its folder.
    #[pyo3(item)]
    file: PathBuf,
}

impl Source {
    fn folder(&self) -> &Path {
        self.file.parent().unwrap_or_else(|| Path::new(""))
    }

    fn table(&self) -> PyResult<toml::Table> {
        if self.is_json {
            return serde_json::from_str(&self.text).map_err(|error| {
                PyValueError::new_err(format!("the scenario is no TOML table: {error}"))
            });
        }
        toml::from_str(&self.text).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn scenario(&self) -> PyResult<Scenario> {
        if self.is_json {
            return Scenario::from_table(self.table()?, self.folder()).map_err(invalid);
        }
        Scenario::parse(&self.text, self.folder())
            .map_err(|error| invalid(error.in_file(&self.file)))
    }
}

/// Returns the exception for an invalid scenario.
fn invalid(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A run's report as JSON, without its flows; the scenario with every default filled in; and tables by name.
type RunOutput = (String, String, BTreeMap<&'static str, Table>);

/// Runs a scenario.
#[pyfunction]
pub(crate) fn run_scenario(
    py: Python<'_>,
    source: Source,
    seed: u64,
    flows: bool,
    policy: Option<Py<PyAny>>,
    congestion: Option<Py<PyAny>>,
) -> PyResult<RunOutput> {
    let mut scenario = source.scenario()?;
    scenario.measure.flows |= flows;
    let algorithms = Algorithms::new(py, policy, congestion, &mut scenario)?;
    let expanded = scenario.expanded().map_err(invalid)?;
    let external = algorithms.external();
    let report = interruptible(py, |cancel| {
        let cancel = algorithms.cancel_on_error(cancel);
        run_with(&scenario, Seed(seed), &Hooks { external, cancel, ..Hooks::default() })
    })?;
    algorithms.raise(py)?;
    let report = report.map_err(invalid)?;
    Ok(run_output(report, expanded))
}

fn run_output(mut report: Report, expanded: String) -> RunOutput {
    let flows = frames::flows_of_run(&std::mem::take(&mut report.flows));
    let mut tables = BTreeMap::from([
        ("flows", Table::from_frame(flows)),
        ("iterations", Table::from_frame(iterations(&report))),
    ]);
    for (heading, table) in report.tables() {
        tables.insert(heading, Table::from_cells(&table));
    }
    (report.to_json(), expanded, tables)
}

/// Returns one row for each collective or round of each workload.
fn iterations(report: &Report) -> Frame {
    let all = || {
        let workloads = (0_i64..).zip(&report.workloads);
        workloads.flat_map(|(number, workload)| {
            workload.iterations.iter().map(move |done| (number, workload.kind, done))
        })
    };
    let column = |name: &str, values| (name.to_owned(), values);
    Frame::new(vec![
        column("workload", Values::Whole(all().map(|(number, ..)| number).collect())),
        column("kind", Values::Text(all().map(|(_, kind, _)| kind.to_owned()).collect())),
        column("start_us", Values::Real(all().map(|(.., done)| done.start_us).collect())),
        column("time_us", Values::Real(all().map(|(.., done)| done.time_us).collect())),
        column("bus_gbps", Values::Real(all().map(|(.., done)| done.bus_gbps).collect())),
    ])
}

/// The axes of a comparison as Python gives them.
#[derive(FromPyObject)]
pub(crate) struct Axes {
    #[pyo3(item)]
    balancers: Vec<String>,
    #[pyo3(item)]
    loads: Vec<f64>,
    /// Networks by name, each a table as JSON.
    #[pyo3(item)]
    topologies: Vec<(String, String)>,
    #[pyo3(item)]
    seeds: Vec<u64>,
}

/// Runs several balancers on the same arrivals. Returns the comparison as JSON, and a row for each cell, run and flow.
#[pyfunction]
pub(crate) fn compare_balancers(
    py: Python<'_>,
    source: Source,
    axes: Axes,
    flows: bool,
    threads: Option<usize>,
) -> PyResult<(String, BTreeMap<&'static str, Table>)> {
    let known = source.scenario()?.variants;
    let variants = match axes.balancers.as_slice() {
        [] => known,
        names => {
            let found = names.iter().map(|name| resolve(name, &known));
            found.collect::<Result<_, _>>().map_err(invalid)?
        }
    };
    if variants.is_empty() {
        return Err(PyValueError::new_err(
            "the scenario has no variant to compare; name balancers, as in \
             balancers=[\"ecmp\", \"oblivious\"]",
        ));
    }
    let topology = |(name, json): (String, String)| {
        serde_json::from_str(&json).map(|table| (name, table)).map_err(invalid)
    };
    let plan = Plan {
        scenario: source.table()?,
        folder: source.folder().into(),
        variants,
        loads: axes.loads,
        topologies: axes.topologies.into_iter().map(topology).collect::<PyResult<_>>()?,
        seeds: axes.seeds,
        flows,
    };
    let workers = workers(threads);
    let rows = interruptible(py, |cancel| {
        let hooks = Hooks { cancel, ..Hooks::default() };
        let runs = plan.run_shard(Shard::WHOLE, workers, &hooks, &|_| {})?;
        plan.rows(runs)
    })?;
    let rows = rows.map_err(|error: CompareError| invalid(error))?;
    let json = plan.to_json(&rows).to_string();
    let tables = [
        ("rows", frames::rows(&rows)),
        ("runs", frames::runs(&rows)),
        ("flows", frames::flows(&rows)),
    ];
    Ok((json, tables.map(|(name, frame)| (name, Table::from_frame(frame))).into()))
}

/// Returns the number of threads: `requested`, or one for each processor.
fn workers(requested: Option<usize>) -> usize {
    requested.or_else(|| available_parallelism().ok().map(Into::into)).unwrap_or(1)
}
