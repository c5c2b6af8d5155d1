//! `weft sim run`: runs a scenario.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use weft_report::Unit;
use weft_sim::batch::Job;
use weft_sim::capture::Capture;
use weft_sim::memory::prefer_huge_pages;
use weft_sim::{Report, Scenario, run_all};
use weft_units::Seed;

use super::batch::{Batch, Seeds};
use super::page::{headline, page};
use crate::files::{in_scenario, read_scenario};
use crate::progress;
use weft_report::terminal::Destination;
use weft_report::terminal::{Output, render, write_file};

/// Options of the run and of its report.
#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    /// The scenario file; of an experiment, the scenario its runs start from
    scenario: PathBuf,
    #[command(flatten)]
    seeds: Seeds,
    #[command(flatten)]
    batch: Batch,
    /// Print one line for each flow instead of tables
    #[arg(long, conflicts_with_all = ["json", "seeds"])]
    csv: bool,
    /// Write a page with plots of the first run
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the packets of hosts to a file for Wireshark, without payloads
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    capture: Option<PathBuf>,
    /// Maximum number of packets to write; they are kept in memory until the run ends
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, requires = "capture")]
    capture_packets: usize,
}

pub(super) fn run(arguments: &RunArgs, output: Output) -> Result<()> {
    let mut scenario = read_scenario(&arguments.scenario, &arguments.batch.set)?;
    // Distributions and CSV need every flow.
    scenario.measure.flows |= arguments.csv || arguments.html.is_some();
    let expanded = scenario.expanded()?;
    prefer_huge_pages();
    let began = Instant::now();
    let reports = match &arguments.capture {
        Some(file) => vec![run_captured(&scenario, arguments, file)?],
        None => run_seeds(&scenario, arguments)?,
    };
    let elapsed = began.elapsed();
    if let Some(file) = &arguments.html {
        write_file(file, &page(&scenario, &expanded, &reports[0]).to_html())?;
    }
    if arguments.csv {
        return output.raw(&reports[0].flow_lines().to_csv());
    }
    let value = json!({ "scenario": expanded, "reports": reports });
    output.value(&value, || text(&reports, &expanded, elapsed, arguments))
}

fn run_seeds(scenario: &Scenario, arguments: &RunArgs) -> Result<Vec<Report>> {
    let job = |seed| Job { scenario: scenario.clone(), seed: Seed(seed) };
    let jobs: Vec<Job> = arguments.seeds.each().map(job).collect();
    let bar = progress::counting(jobs.len(), &format!("simulating {}", scenario.name));
    let results = run_all(&jobs, arguments.batch.workers(), |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let results: Result<Vec<Report>, _> = results.into_iter().collect();
    results.map_err(|error| in_scenario(&arguments.scenario, error))
}

/// Runs one seed, and writes its packets to `file`.
fn run_captured(scenario: &Scenario, arguments: &RunArgs, file: &Path) -> Result<Report> {
    let destination = Destination::open(file)?;
    let seed = arguments.seeds.each().next().expect("at least one");
    let capture = Capture::new(arguments.capture_packets);
    let (report, capture) = weft_sim::run_captured(scenario, Seed(seed), capture)
        .map_err(|error| in_scenario(&arguments.scenario, error))?;
    if capture.packets_skipped() > 0 {
        let (kept, left) = (capture.len(), capture.packets_skipped());
        eprintln!("weft: {} has the first {kept} packets; {left} are left out", file.display());
    }
    let mut bytes = Vec::new();
    capture.write(&mut bytes, &scenario.name).expect("memory takes everything");
    destination.write(bytes)?;
    Ok(report)
}

fn text(reports: &[Report], expanded: &str, elapsed: Duration, arguments: &RunArgs) -> String {
    let mut text = String::new();
    for report in reports {
        text += &format!("{}\n\n", headline(report));
        for (heading, table) in report.tables() {
            text += &format!("{heading}\n{}\n", render(&table));
        }
    }
    text += &format!("Scenario, every default filled in\n{expanded}\n");
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let hops = reports.iter().map(|report| report.network.packet_hops as f64).sum::<f64>();
    let seconds = elapsed.as_secs_f64();
    text +=
        &format!("{} packet hops in {}", Unit::Count.format(hops), Unit::Seconds.format(seconds));
    if let Some(file) = &arguments.html {
        text += &format!("; the page: {}", file.display());
    }
    text
}
