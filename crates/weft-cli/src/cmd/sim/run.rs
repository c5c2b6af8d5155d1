//! `weft sim run`: runs a scenario.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use weft_report::Unit;
use weft_sim::batch::Job;
use weft_sim::capture::Capture;
use weft_sim::memory::prefer_huge_pages;
use weft_sim::timeline::Timeline;
use weft_sim::{Report, RunError, Scenario, run_all, run_on, run_watched};
use weft_units::Seed;

use super::batch::{Batch, Seeds};
use super::page::{headline, page};
use super::perfetto::PerfettoArgs;
use super::watch::{Bar, Watchers};
use crate::files::{in_scenario, locate, read_scenario};
use crate::progress;
use weft_report::terminal::Destination;
use weft_report::terminal::{Output, render};

/// Options of the run and of its report.
#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    /// The scenario: a file, or a name such as incast; of an experiment, the scenario its runs start from
    scenario: PathBuf,
    #[command(flatten)]
    seeds: Seeds,
    #[command(flatten)]
    batch: Batch,
    /// Skip steady states; THRESHOLD is the maximum difference between durations of units, as a share
    #[arg(long, value_name = "THRESHOLD", num_args = 0..=1, require_equals = true, default_missing_value = "0.05")]
    fast_forward: Option<f64>,
    /// Run it exactly as well, and report the errors of fast-forward
    #[arg(long)]
    check: bool,
    /// Print one line for each flow instead of tables
    #[arg(long, conflicts_with_all = ["json", "seeds"])]
    csv: bool,
    /// Write a page with pictures of the first run: links over time, messages, queues
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    perfetto: PerfettoArgs,
    /// Write the packets of hosts to a file for Wireshark, without payloads
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    capture: Option<PathBuf>,
    /// Maximum number of packets to write; they are kept in memory until the run ends
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, requires = "capture")]
    capture_packets: usize,
}

pub(super) fn run(arguments: &RunArgs, output: Output) -> Result<()> {
    let file = &locate(&arguments.scenario);
    let mut scenario = read_scenario(file, &arguments.settings())?;
    let expanded = scenario.expanded()?;
    // Distributions and CSV need every flow; the report keeps them only if the scenario says so.
    let lists_flows = scenario.measure.flows;
    scenario.measure.flows |= arguments.csv || arguments.html.is_some();
    prefer_huge_pages();
    let began = Instant::now();
    let mut seeds: Vec<u64> = arguments.seeds.each().collect();
    let (mut reports, mut exports) = (vec![], vec![]);
    let is_divided = arguments.batch.threads_of_run() > NonZeroUsize::MIN;
    if seeds.len() == 1 && is_divided && !arguments.exports() {
        reports = vec![run_divided(&scenario, file, seeds.remove(0), arguments)?];
    } else if seeds.len() == 1 || arguments.exports() {
        let (first, lines) = run_first(&scenario, file, &expanded, seeds.remove(0), arguments)?;
        (reports, exports) = (vec![first], lines);
    }
    reports.extend(run_seeds(&scenario, file, &seeds, arguments)?);
    let elapsed = began.elapsed();
    if arguments.csv {
        return output.raw(&reports[0].flow_lines().to_csv());
    }
    if !lists_flows {
        reports.iter_mut().for_each(|report| report.flows.clear());
    }
    let value = json!({ "scenario": expanded, "reports": reports });
    output.value(&value, || text(&reports, &expanded, elapsed, &exports))
}

impl RunArgs {
    /// Returns the keys of the scenario that options set, as KEY=VALUE.
    fn settings(&self) -> Vec<String> {
        let mut settings = self.batch.set.clone();
        settings.extend(self.fast_forward.map(|share| format!("run.fast_forward={share:?}")));
        settings.extend(self.check.then(|| "run.compare_exact=true".to_string()));
        settings
    }

    /// Returns `true` if the first run is written to files.
    fn exports(&self) -> bool {
        self.html.is_some() || self.capture.is_some() || self.perfetto.perfetto.is_some()
    }
}

/// Runs one seed on several threads, if the scenario allows it.
fn run_divided(scenario: &Scenario, file: &Path, seed: u64, arguments: &RunArgs) -> Result<Report> {
    let mut bar = bar(scenario, arguments);
    let result = run_on(scenario, Seed(seed), arguments.batch.threads_of_run(), &mut bar);
    drop(bar);
    let (report, alone_because) = result.map_err(|error| in_scenario(file, error))?;
    if let Some(reason) = alone_because {
        eprintln!("weft: the run takes one thread: {reason}");
    }
    Ok(report)
}

/// Runs the first seed, and writes the files that show it; returns a line for each of them.
fn run_first(
    scenario: &Scenario,
    file: &Path,
    expanded: &str,
    seed: u64,
    arguments: &RunArgs,
) -> Result<(Report, Vec<String>)> {
    let in_file = |error: RunError| in_scenario(file, error);
    let topology = scenario.build_topology().map_err(|error| in_file(error.into()))?;
    let capture_file = arguments.capture.as_deref().map(Destination::open).transpose()?;
    let page_file = arguments.html.as_deref().map(Destination::open).transpose()?;
    let trace = arguments.perfetto.open(scenario, &topology)?;
    let is_shown = page_file.is_some() || trace.is_some();
    let interval = arguments.perfetto.interval.into();
    let mut watchers = Watchers {
        bar: Some(bar(scenario, arguments)),
        timeline: is_shown.then(|| Timeline::new(interval)),
        trace,
    };
    let mut capture = capture_file.is_some().then(|| Capture::new(arguments.capture_packets));
    let report = run_watched(scenario, Seed(seed), &mut capture, &mut watchers).map_err(in_file)?;
    let Watchers { timeline, trace, bar } = watchers;
    drop(bar);
    let mut exports = Vec::new();
    if let Some((file, capture)) = capture_file.zip(capture) {
        write_capture(file, capture, scenario)?;
    }
    if let Some((file, timeline)) = page_file.zip(timeline.as_ref()) {
        let pictures = timeline.pictures(scenario, &topology);
        exports.push(format!("the page: {}", file.path().display()));
        file.write(page(scenario, expanded, &report, pictures).to_html())?;
    }
    if let Some((file, timeline)) = trace.zip(timeline.as_ref()) {
        exports.push(arguments.perfetto.finish(file, timeline, &topology)?);
    }
    Ok((report, exports))
}

fn bar(scenario: &Scenario, arguments: &RunArgs) -> Bar {
    Bar::new(progress::share(&what(scenario), arguments.batch.quiet))
}

fn what(scenario: &Scenario) -> String {
    format!("simulating {}", scenario.name)
}

/// Runs several seeds.
fn run_seeds(
    scenario: &Scenario,
    file: &Path,
    seeds: &[u64],
    arguments: &RunArgs,
) -> Result<Vec<Report>> {
    let job = |&seed| Job { scenario: scenario.clone(), seed: Seed(seed) };
    let jobs: Vec<Job> = seeds.iter().map(job).collect();
    if jobs.is_empty() {
        return Ok(vec![]);
    }
    let bar = progress::counting_unless(arguments.batch.quiet, jobs.len(), &what(scenario));
    let results = run_all(&jobs, arguments.batch.workers(), &|done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let results: Result<Vec<Report>, _> = results.into_iter().collect();
    results.map_err(|error| in_scenario(file, error))
}

/// Writes the packets of a run.
fn write_capture(destination: Destination, capture: Capture, scenario: &Scenario) -> Result<()> {
    if capture.packets_skipped() > 0 {
        let (file, kept) = (destination.path().display(), capture.len());
        let left = capture.packets_skipped();
        eprintln!("weft: {file} has the first {kept} packets; {left} are left out");
    }
    let mut bytes = Vec::new();
    capture.write(&mut bytes, &scenario.name).expect("memory takes everything");
    destination.write(bytes)
}

fn text(reports: &[Report], expanded: &str, elapsed: Duration, exports: &[String]) -> String {
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
    exports.iter().for_each(|line| text += &format!("\n{line}"));
    text
}
