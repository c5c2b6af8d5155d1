//! `weft sim compare`: runs several balancers on the same arrivals.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use weft_report::Frame;
use weft_sim::compare::{Part, Plan, Row, Shard, Summary, frames, resolve};
use weft_sim::scenario::Variant;
use weft_sim::{Advance, Hooks};

use super::batch::{Batch, Seeds};
use crate::files::{locate, read_table};
use crate::progress;
use weft_report::terminal::Destination;
use weft_report::terminal::{Output, render};

mod axes;
mod merge;
mod page;
mod table;

pub(super) use merge::MergeArgs;
pub(super) use merge::run as merge;

/// Options of the comparison and of its report.
#[derive(Debug, clap::Args)]
pub(super) struct CompareArgs {
    /// The scenario: a file, or a name such as balancers; of an experiment, the scenario its runs start from
    scenario: PathBuf,
    /// Balancers, of which the first is the baseline: variants of the scenario, path
    /// policies, switch models, congestion controls, or several of these joined by `+`
    /// [default: the scenario's variants]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    balancers: Vec<String>,
    /// Loads of the workloads that have one, such as 0.5 or 50%
    #[arg(long, value_name = "LOAD,…", value_delimiter = ',', value_parser = axes::load)]
    loads: Vec<f64>,
    /// Networks: shapes such as leaf-spine or leaf-spine:spines=4, or topology files
    #[arg(long, value_name = "TOPOLOGY,…", value_delimiter = ',')]
    topologies: Vec<String>,
    #[command(flatten)]
    seeds: Seeds,
    #[command(flatten)]
    batch: Batch,
    /// Run only one of OF equal shares of the runs, and write its results to the file of --part
    #[arg(long, value_name = "NUMBER/OF", requires = "part", conflicts_with_all = ["csv", "html", "runs", "flows", "json"])]
    shard: Option<Shard>,
    /// The file for the results of a shard, which `weft sim merge` reads
    #[arg(long, value_name = "FILE", requires = "shard")]
    part: Option<PathBuf>,
    /// Keep every flow in the results of a shard, for `weft sim merge --flows`
    #[arg(long, requires = "shard")]
    part_flows: bool,
    #[command(flatten)]
    outputs: Outputs,
}

/// The forms in which a comparison is printed and written.
#[derive(Debug, clap::Args)]
struct Outputs {
    /// Print comma-separated values instead of a table
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Write a page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a row for each run; .csv or .parquet
    #[arg(long, value_name = "FILE")]
    runs: Option<PathBuf>,
    /// Write a row for each flow of each run; .csv or .parquet
    #[arg(long, value_name = "FILE")]
    flows: Option<PathBuf>,
}

/// The results of a comparison.
#[derive(Debug)]
struct Comparison {
    plan: Plan,
    name: String,
    about: String,
    rows: Vec<Row>,
}

pub(super) fn run(arguments: &CompareArgs, output: Output) -> Result<()> {
    let plan = plan(arguments)?;
    if let (Some(shard), Some(file)) = (arguments.shard, &arguments.part) {
        let file = Destination::open(file)?;
        let runs = run_shard(&plan, shard, arguments)?;
        return file.write(serde_json::to_string(&Part::new(plan, shard, runs))?);
    }
    arguments.outputs.show(output, || {
        let runs = run_shard(&plan, Shard::WHOLE, arguments)?;
        Comparison::new(plan, runs)
    })
}

impl Outputs {
    /// Writes the comparison that `make` returns. Files that cannot be written are refused first.
    fn show(&self, output: Output, make: impl FnOnce() -> Result<Comparison>) -> Result<()> {
        let page = self.html.as_deref().map(Destination::open).transpose()?;
        let runs = self.runs.as_deref().map(FrameFile::open).transpose()?;
        let flows = self.flows.as_deref().map(FrameFile::open).transpose()?;
        let comparison = make()?;
        if let Some(page) = page {
            page.write(page::page(&comparison).to_html())?;
        }
        if let Some(runs) = runs {
            runs.write(&frames::runs(&comparison.rows))?;
        }
        if let Some(flows) = flows {
            flows.write(&frames::flows(&comparison.rows))?;
        }
        if self.csv {
            return output.raw(&frames::rows(&comparison.rows).to_csv());
        }
        let value = comparison.plan.to_json(&comparison.rows);
        output.value(&value, || text(&comparison, self.html.as_deref()))
    }
}

fn plan(arguments: &CompareArgs) -> Result<Plan> {
    let file = &locate(&arguments.scenario);
    let (scenario, table, folder) = read_table(file, &arguments.batch.set)?;
    let variants: Vec<Variant> = match arguments.balancers.as_slice() {
        [] => scenario.variants,
        names => {
            names.iter().map(|name| resolve(name, &scenario.variants)).collect::<Result<_, _>>()?
        }
    };
    if variants.is_empty() {
        bail!(
            "{} has no [[variant]] to compare; name balancers, as in --balancers ecmp,oblivious",
            file.display()
        );
    }
    let first_twice = variants
        .iter()
        .enumerate()
        .find(|(index, variant)| variants[..*index].iter().any(|other| other.name == variant.name));
    if let Some((_, twice)) = first_twice {
        bail!("--balancers names {:?} twice", twice.name);
    }
    let topologies = arguments.topologies.iter().map(|text| axes::topology(text));
    Ok(Plan {
        scenario: table,
        folder,
        variants,
        loads: arguments.loads.clone(),
        topologies: topologies.collect::<Result<_>>()?,
        seeds: arguments.seeds.each().collect(),
        flows: arguments.outputs.flows.is_some() || arguments.part_flows,
    })
}

fn run_shard(plan: &Plan, shard: Shard, arguments: &CompareArgs) -> Result<Vec<Summary>> {
    let count = (0..plan.runs()).filter(|&index| shard.has(index)).count();
    let bar = progress::runs(count, "comparing", arguments.batch.quiet);
    let steps = bar.clone();
    let hooks = Hooks { advance: Advance::to(move |done| steps.inc(done)), ..Hooks::default() };
    let on_run = |done: usize| bar.set_message(format!("{done} of {count} runs"));
    let runs = plan.run_shard(shard, arguments.batch.workers(), &hooks, &on_run);
    bar.finish_and_clear();
    runs.with_context(|| arguments.scenario.display().to_string())
}

impl Comparison {
    /// Returns the results of a plan whose runs, in order, are `runs`.
    fn new(plan: Plan, runs: Vec<Summary>) -> Result<Self> {
        let text = |key: &str| {
            let value = plan.scenario.get(key).and_then(|value| value.as_str());
            value.unwrap_or_default().to_owned()
        };
        let (name, about) = (text("name"), text("about"));
        let rows = plan.rows(runs)?;
        Ok(Self { plan, name, about, rows })
    }
}

fn text(comparison: &Comparison, page: Option<&Path>) -> String {
    let mut text = format!("{}\n\n", headline(comparison));
    text += &render(&table::rows(comparison));
    if comparison.plan.seeds.len() > 1 {
        text += &format!("\n{}\n", table::INTERVAL);
    }
    if let Some(file) = page {
        text += &format!("\nThe page: {}\n", file.display());
    }
    text
}

/// Returns the headline, such as `hopper-fig3: 4 balancers, 2 loads, 5 seeds`.
fn headline(comparison: &Comparison) -> String {
    let Plan { variants, loads, topologies, seeds, .. } = &comparison.plan;
    let counted = [
        (variants.len(), "balancer"),
        (loads.len(), "load"),
        (topologies.len(), "topology"),
        (seeds.len(), "seed"),
    ];
    let parts = counted.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| {
        let what = match (count, what) {
            (1, _) => what.to_owned(),
            (_, "topology") => "topologies".to_owned(),
            _ => format!("{what}s"),
        };
        format!("{count} {what}")
    });
    let name = if comparison.name.is_empty() { "unnamed" } else { &comparison.name };
    format!("{name}: {}", parts.collect::<Vec<_>>().join(", "))
}

/// A file of rows, in the format of its extension.
#[derive(Debug)]
struct FrameFile {
    destination: Destination,
    form: Form,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Csv,
    Parquet,
}

impl FrameFile {
    fn open(path: &Path) -> Result<Self> {
        let form = match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Form::Csv,
            Some("parquet") => Form::Parquet,
            _ => bail!("{}: expected a name that ends in .csv or .parquet", path.display()),
        };
        Ok(Self { destination: Destination::open(path)?, form })
    }

    fn write(self, frame: &Frame) -> Result<()> {
        match self.form {
            Form::Csv => self.destination.write(frame.to_csv()),
            Form::Parquet => self.destination.write(frame.to_parquet()),
        }
    }
}
