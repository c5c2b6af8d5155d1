//! `weft experiment`: the papers' figures, and their values beside ours.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use serde_json::{Value, json};
use weft_report::{Column, Table};
use weft_sim::batch::Job;
use weft_sim::experiment::{self, Experiment, Findings, Outcome, Point};
use weft_sim::{Scenario, run_all};
use weft_units::Seed;

use crate::cmd::sim::Batch;
use crate::files::{experiments_folder, find_experiment, read_experiment, toml_files};
use crate::output::{Output, write_file};
use crate::{overrides, progress};

mod present;

/// Reproduce a figure of a paper, its values beside ours
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  weft experiment list
  weft experiment run stellar-fig12
  weft experiment run stellar-fig9 --html out/fig9.html
  weft experiment run experiments/*.toml --json > findings.json"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the experiments of this repository
    #[command(after_help = "\
Example:
  weft experiment list --json | jq -r '.[].name'")]
    List,
    /// Run experiments: every combination of what varies, then the claims
    #[command(after_help = "\
Examples:
  weft experiment run stellar-fig12
  weft experiment run stellar-fig9 --html out/fig9.html
  weft experiment run stellar-fig10                             its parts, 10a and 10b
  weft experiment run stellar-fig9 --set run.limit=500us        a shorter run

Exit code 1 when a claim does not hold, or holds though the file says that it differs.")]
    Run(RunArgs),
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Names, as `weft experiment list` gives them, or files
    #[arg(required = true)]
    experiments: Vec<String>,
    #[command(flatten)]
    batch: Batch,
    /// Print the rows as comma-separated values
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Write a page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    match arguments.verb {
        Verb::List => list(output),
        Verb::Run(arguments) => run_all_of(&arguments, output),
    }
}

fn list(output: Output) -> Result<ExitCode> {
    let Some(folder) = experiments_folder() else {
        bail!("no folder named experiments here or above; run this in Weft's repository");
    };
    let columns = [("name", "name"), ("measures", "title"), ("source", "source")];
    let columns = columns.map(|(heading, key)| Column::text(heading, key));
    let mut table = Table::new(columns.to_vec());
    for file in toml_files(&folder) {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let row = match read_experiment(&file) {
            Ok(experiment) => {
                vec![name.into(), experiment.title.into(), experiment.source.into()]
            }
            Err(error) => vec![name.into(), format!("not usable: {error:#}").into(), "".into()],
        };
        table.push(row);
    }
    output.table(&table)?;
    Ok(ExitCode::SUCCESS)
}

fn run_all_of(arguments: &RunArgs, output: Output) -> Result<ExitCode> {
    let mut done: Vec<(String, Experiment, Findings)> = vec![];
    for file in files_of(&arguments.experiments)? {
        let mut experiment = read_experiment(&file)?;
        overrides::set(&mut experiment.scenario, &arguments.batch.set)?;
        let findings =
            perform(&file, &experiment, arguments).with_context(|| file.display().to_string())?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        done.push((name, experiment, findings));
    }
    if let Some(file) = &arguments.html {
        write_file(file, &present::page(&done).to_html())?;
    }
    if arguments.csv {
        let tables =
            done.iter().map(|(_, experiment, findings)| present::rows(experiment, findings));
        output.raw(&tables.map(|table| table.to_csv()).collect::<Vec<_>>().join("\n"))?;
    } else {
        let value: Vec<Value> = done.iter().map(value).collect();
        output.value(&value, || done.iter().map(present::text).collect::<Vec<_>>().join("\n"))?;
    }
    let mut claims = done.iter().flat_map(|(.., findings)| &findings.claims);
    Ok(if claims.all(Outcome::as_stated) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The files of what was asked for.
fn files_of(names: &[String]) -> Result<Vec<PathBuf>> {
    let files = names.iter().map(|name| find_experiment(name)).collect::<Result<Vec<_>>>()?;
    Ok(files.concat())
}

fn value((name, experiment, findings): &(String, Experiment, Findings)) -> Value {
    let Experiment { title, source, paper, differs, seeds, .. } = experiment;
    json!({
        "name": name, "title": title, "source": source, "paper": paper, "differs": differs,
        "seeds": seeds, "findings": findings,
    })
}

/// Every point with every seed, then the claims.
fn perform(file: &Path, experiment: &Experiment, arguments: &RunArgs) -> Result<Findings> {
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    let points = experiment.points()?;
    let mut jobs = vec![];
    for point in &points {
        let scenario =
            Scenario::from_table(point.scenario.clone(), folder).with_context(|| place(point))?;
        jobs.extend(
            experiment
                .seeds
                .iter()
                .map(|&seed| Job { scenario: scenario.clone(), seed: Seed(seed) }),
        );
    }
    let bar = progress::counting(jobs.len(), &experiment.title);
    let results = run_all(&jobs, arguments.batch.workers(), |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let mut results = results.into_iter();
    let mut rows = vec![];
    for point in &points {
        let reports = results.by_ref().take(experiment.seeds.len());
        let reports = reports.collect::<Result<Vec<_>, _>>().with_context(|| place(point))?;
        let values = reports.iter().map(serde_json::to_value).collect::<Result<Vec<Value>, _>>()?;
        rows.push(experiment.measure(point, &values)?);
    }
    Ok(experiment.judge(rows)?)
}

/// Where in the experiment a run belongs.
fn place(point: &Point) -> String {
    if point.at.is_empty() { "the only run".into() } else { experiment::place(&point.at) }
}
