//! Reproduction of a figure by runs of the simulator, or by a bench and the rows that it prints.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use weft_sim::batch::{Job, run_each};
use weft_sim::experiment::{self, Bench, Findings, Point, Source};
use weft_sim::{Hooks, Scenario};
use weft_units::Seed;

use crate::{Figure, Provenance, Recorded};
use crate::{library, machine};

/// The environment variable with the file to which benches append their rows.
const ROWS: &str = "WEFT_BENCH_JSON";

/// A runner that reproduces figures. A bench that measures several figures runs once.
#[derive(Debug)]
pub struct Runner {
    /// Number of parallel simulations.
    workers: usize,
    /// The additions of the runs' owner.
    hooks: Hooks,
    /// The rows of each bench, by command.
    benches: BTreeMap<String, Vec<Value>>,
}

impl Runner {
    /// Returns a runner with `workers` parallel simulations.
    pub fn new(workers: usize) -> Self {
        Self { workers, hooks: Hooks::default(), benches: BTreeMap::new() }
    }

    /// Returns the runner with the additions of the simulations' owner.
    #[must_use]
    pub fn with_hooks(self, hooks: Hooks) -> Self {
        Self { hooks, ..self }
    }

    /// Reproduces a figure and evaluates its claims; returns `None` if the figure cannot be reproduced here. `progress`
    /// is called with the numbers of finished runs and of all runs.
    ///
    /// # Errors
    /// Returns an error if a run or the bench fails, or if the bench prints no row of this figure.
    #[expect(clippy::disallowed_methods, reason = "results record their duration")]
    pub fn run(
        &mut self,
        figure: &Figure,
        progress: impl Fn(usize, usize) + Sync,
    ) -> Result<Option<(Recorded, Findings)>> {
        let started = Instant::now();
        let findings = match figure.experiment.source() {
            Source::Missing(_) => return Ok(None),
            Source::Simulated => self.simulate(figure, progress)?,
            Source::Bench(bench) => self.measure(figure, bench)?,
        };
        let made = Provenance {
            command: format!("weft experiment run {}", figure.name),
            on: machine::today(),
            commit: machine::commit(&root_of(&figure.file)),
            machine: machine::processors(),
            seconds: Some((started.elapsed().as_secs_f64() * 10.0).round() / 10.0),
        };
        let recorded = Recorded { made, published: String::new(), rows: findings.rows.clone() };
        Ok(Some((recorded, findings)))
    }

    /// Runs every point with every seed and evaluates the claims.
    fn simulate(
        &self,
        figure: &Figure,
        progress: impl Fn(usize, usize) + Sync,
    ) -> Result<Findings> {
        let experiment = &figure.experiment;
        let folder = figure.file.parent().unwrap_or_else(|| Path::new(""));
        let points = experiment.points()?;
        let mut jobs = vec![];
        for point in &points {
            let scenario = Scenario::from_table(point.scenario.clone(), folder)
                .with_context(|| place(point))?;
            let job = |&seed: &u64| Job { scenario: scenario.clone(), seed: Seed(seed) };
            jobs.extend(experiment.seeds.iter().map(job));
        }
        let progress = |done: usize| progress(done, jobs.len());
        let keep = |_, report| report;
        let mut results = run_each(&jobs, self.workers, &self.hooks, &progress, keep).into_iter();
        let mut rows = vec![];
        for point in &points {
            let reports = results.by_ref().take(experiment.seeds.len());
            let reports = reports.collect::<Result<Vec<_>, _>>().with_context(|| place(point))?;
            let values = reports.iter().map(serde_json::to_value);
            rows.push(experiment.measure(point, &values.collect::<Result<Vec<Value>, _>>()?)?);
        }
        Ok(experiment.evaluate(rows)?)
    }

    fn measure(&mut self, figure: &Figure, bench: &Bench) -> Result<Findings> {
        ensure!(
            !library::is_built_in(&figure.file),
            "{} is measured by `{}`, which needs Weft's repository: run this there",
            figure.name,
            bench.command
        );
        if !self.benches.contains_key(&bench.command) {
            let rows = run_bench(bench, figure)?;
            self.benches.insert(bench.command.clone(), rows);
        }
        let rows = &self.benches[&bench.command];
        let name = if bench.rows.is_empty() { &figure.name } else { &bench.rows };
        let own: Vec<Value> =
            rows.iter().filter(|row| row["figure"] == name.as_str()).cloned().collect();
        ensure!(!own.is_empty(), "`{}` printed no row of {name}", bench.command);
        let experiment = &figure.experiment;
        Ok(experiment.evaluate(experiment.measure_rows(&own)?)?)
    }
}

/// Returns the repository's root for an experiment file.
fn root_of(file: &Path) -> PathBuf {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let above = folder.unwrap_or_else(|| Path::new(".")).canonicalize().ok();
    above.as_deref().and_then(Path::parent).unwrap_or_else(|| Path::new("/")).into()
}

/// Runs a bench and returns its rows. Its standard output goes to standard error.
fn run_bench(bench: &Bench, figure: &Figure) -> Result<Vec<Value>> {
    let file =
        std::env::temp_dir().join(format!("weft-rows-{}-{}.json", std::process::id(), figure.name));
    let _ = fs::remove_file(&file);
    let mut shell = Command::new("sh");
    shell.args(["-c", &bench.command]).current_dir(root_of(&figure.file)).env(ROWS, &file);
    let status = shell.stdin(Stdio::null()).stdout(std::io::stderr()).status()?;
    let text = fs::read_to_string(&file).unwrap_or_default();
    let _ = fs::remove_file(&file);
    if !status.success() {
        let needs = if bench.root { "; it needs root" } else { "" };
        bail!("`{}`: {status}{needs}", bench.command);
    }
    let rows = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    rows.with_context(|| format!("`{}` printed a row that is not JSON", bench.command))
}

/// Returns the coordinates of a run in the experiment, for error messages.
fn place(point: &Point) -> String {
    if point.at.is_empty() { "the only run".into() } else { experiment::place(&point.at) }
}
