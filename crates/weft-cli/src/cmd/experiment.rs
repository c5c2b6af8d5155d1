//! `weft experiment`: runs the papers' figures and the topics of Weft's own performance, and shows the papers' values
//! or the targets beside Weft's.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use serde_json::{Value, json};
use weft_figures::{Entry, Figure, Results, Runner, Tally};
use weft_report::{Column, Table};
use weft_sim::experiment::Experiment;

use crate::cmd::sim::Batch;
use crate::{overrides, progress};
use weft_report::terminal::{Output, render, write_file};

/// Reproduce a figure of a paper, its values beside ours
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  weft experiment list
  weft experiment run stellar-fig12
  weft experiment run stellar-fig9 --html out/fig9.html
  weft experiment run --all --html out/figures.html"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the experiments of this repository, or those that are part of the program, and the result of each
    #[command(after_help = "\
Example:
  weft experiment list --json | jq -r '.[].name'")]
    List,
    /// Run experiments: every combination of the parameters, or the bench, then the claims
    #[command(after_help = "\
Examples:
  weft experiment run stellar-fig12
  weft experiment run stellar-fig9 --html out/fig9.html
  weft experiment run stellar-fig10                             its parts, 10a and 10b
  weft experiment run astral                                    all figures of a paper
  weft experiment run perf --record                             Weft's own performance, also in the docs
  weft experiment run stellar-fig9 --set run.limit=500us        a shorter run
  weft experiment run --all --record --html out/figures.html    everything, also in the docs

Standard error has each figure's verdict as it ends, and at the end the total seconds.
Exit code 1 when a claim does not hold, or holds though the file says that it differs, or a figure cannot be run.")]
    Run(RunArgs),
    /// Write the pages of the docs that are made from the recorded results
    #[command(after_help = "\
Examples:
  weft experiment pages")]
    Pages,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Names, as `weft experiment list` gives them, papers, or files
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    experiments: Vec<String>,
    /// Every figure of every paper
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    batch: Batch,
    /// Write the rows to docs/data/results.json, and the pages made from it
    #[arg(long, conflicts_with = "set")]
    record: bool,
    /// Time budget in minutes; a figure that took longer than the rest of the budget is not started
    #[arg(long, value_name = "MINUTES")]
    budget: Option<u32>,
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
        Verb::Pages => write_pages(&root()?).map(|()| ExitCode::SUCCESS),
    }
}

/// Returns the repository's root.
fn root() -> Result<PathBuf> {
    let Some(folder) = weft_figures::find_folder() else {
        bail!("no folder named experiments here or above; run this in Weft's repository");
    };
    Ok(folder.parent().unwrap_or_else(|| Path::new("/")).into())
}

/// Returns the results that the repository has; none outside of it.
fn results() -> Result<Results> {
    weft_figures::find_folder().map_or_else(|| Ok(Results::default()), |_| Results::read(&root()?))
}

fn list(output: Output) -> Result<ExitCode> {
    let results = results()?;
    let columns =
        [("name", "name"), ("verdict", "verdict"), ("measures", "title"), ("source", "source")];
    let mut table = Table::new(columns.map(|(heading, key)| Column::text(heading, key)).to_vec());
    for file in weft_figures::files(&weft_figures::folder()) {
        let entry = Figure::read(&file).and_then(|figure| recorded(figure, &results));
        table.push(match entry {
            Ok(Entry { figure: Figure { name, experiment, .. }, verdict, .. }) => vec![
                name.into(),
                verdict.to_string().into(),
                experiment.title.into(),
                experiment.source.into(),
            ],
            Err(error) => {
                let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                vec![name.into(), "".into(), format!("not usable: {error:#}").into(), "".into()]
            }
        });
    }
    output.table(&table)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a figure with its recorded result.
fn recorded(figure: Figure, results: &Results) -> Result<Entry> {
    let recorded = results.get(&figure.name).cloned();
    Entry::new(figure, recorded)
}

fn run_all_of(arguments: &RunArgs, output: Output) -> Result<ExitCode> {
    let files = match arguments.all {
        true => weft_figures::figure_files(&weft_figures::folder()),
        false => weft_figures::select(&arguments.experiments)?,
    };
    let mut runs = Runs {
        arguments,
        runner: Runner::new(arguments.batch.workers()),
        left: arguments.budget.map(|minutes| Duration::from_secs(60 * u64::from(minutes))),
        tally: Tally::default(),
        entries: vec![],
    };
    let several = files.len() > 1;
    for file in files {
        match runs.run(&file) {
            // A figure that cannot run because a program or root is missing must not end the others.
            Err(error) if several => {
                output.error(&error);
                runs.tally.record_failed(&weft_figures::stem(&file));
            }
            done => done?,
        }
    }
    let Runs { tally, entries, .. } = runs;
    if arguments.record {
        write_pages(&root()?)?;
    }
    show(&entries, arguments, output)?;
    if tally.len() > 1 {
        anstream::eprintln!("{}", render(&tally.table()));
    }
    Ok(if tally.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs of figures, one after another.
struct Runs<'a> {
    arguments: &'a RunArgs,
    runner: Runner,
    /// The rest of the time budget.
    left: Option<Duration>,
    tally: Tally,
    entries: Vec<Entry>,
}

impl Runs<'_> {
    /// Runs a figure and prints its result at once.
    fn run(&mut self, file: &Path) -> Result<()> {
        let mut figure = Figure::read(file)?;
        crate::files::say_if_built_in(file);
        overrides::set(&mut figure.experiment.scenario, &self.arguments.batch.set)?;
        // The results are read again, because other processes record results while a run takes hours.
        let results = || results().unwrap_or_default();
        if !fits(&figure, &results(), &mut self.left) {
            eprintln!("{}", self.tally.record_skipped(&figure.name));
            self.entries.push(recorded(figure, &results())?);
            return Ok(());
        }
        let entry = match perform(&mut self.runner, &figure) {
            Ok(entry) => entry,
            Err(error) => {
                self.entries.extend(recorded(figure, &results()));
                return Err(error);
            }
        };
        if let Some(made) = entry.recorded.clone().filter(|_| self.arguments.record) {
            // Results are written at once, because the next figures may take hours and fail.
            let mut results = results();
            results.record(&entry.figure.name, made);
            results.write(&root()?)?;
        }
        eprintln!("{}", self.tally.record_reproduced(&entry));
        self.entries.push(entry);
        Ok(())
    }
}

/// Returns `true` if a figure's last duration fits into the budget that is left, and subtracts it there.
fn fits(figure: &Figure, results: &Results, left: &mut Option<Duration>) -> bool {
    let Some(left) = left else { return true };
    let took = results.get(&figure.name).and_then(|recorded| recorded.made.seconds);
    let took = Duration::from_secs_f64(took.unwrap_or_default());
    let rest = left.checked_sub(took);
    *left = rest.unwrap_or(*left);
    rest.is_some()
}

fn perform(runner: &mut Runner, figure: &Figure) -> Result<Entry> {
    let bar = progress::counting(0, &figure.experiment.title);
    let made = runner.run(figure, |done, of| {
        bar.set_length(of as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let made = made.with_context(|| figure.file.display().to_string())?;
    Entry::new(figure.clone(), made.map(|(recorded, _)| recorded))
}

fn show(entries: &[Entry], arguments: &RunArgs, output: Output) -> Result<()> {
    let names: Vec<&str> = entries.iter().map(|entry| entry.figure.name.as_str()).collect();
    let names = if arguments.all { "--all".into() } else { names.join(" ") };
    if let Some(file) = &arguments.html {
        let page = weft_figures::page(entries, &format!("weft experiment run {names}"));
        write_file(file, &page.to_html())?;
    }
    if arguments.csv {
        let tables = entries.iter().filter_map(|entry| {
            Some(weft_figures::rows(&entry.figure.experiment, entry.findings.as_ref()?).to_csv())
        });
        return output.raw(&tables.collect::<Vec<_>>().join("\n"));
    }
    let value: Vec<Value> = entries.iter().map(value).collect();
    let text = |entry| weft_figures::text(entry, render);
    output.value(&value, || entries.iter().map(text).collect::<Vec<_>>().join("\n"))
}

fn value(entry: &Entry) -> Value {
    let Experiment { title, source, paper, differs, seeds, .. } = &entry.figure.experiment;
    json!({
        "name": entry.figure.name, "title": title, "source": source, "paper": paper, "differs": differs,
        "seeds": seeds, "verdict": entry.verdict, "here": entry.here,
        "made": entry.recorded.as_ref().map(|recorded| &recorded.made), "findings": entry.findings,
    })
}

/// Writes the pages that are made from the recorded results.
fn write_pages(root: &Path) -> Result<()> {
    let entries = weft_figures::entries(root)?;
    for (path, text) in weft_figures::pages(root, &entries)? {
        write_file(&root.join(path), &text)?;
    }
    Ok(())
}
