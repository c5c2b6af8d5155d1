//! `weft lab run`: runs a scenario on real packets, and shows the results beside the simulator's.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use weft_report::{Cell, Column, Table};
use weft_sim::Hooks;
use weft_sim::Scenario;
use weft_sim::batch::{Job, run_each};
use weft_sim::compare::{Cell as Place, Estimate, METRICS, Metric, Row, Summary, resolve};
use weft_sim::scenario::Variant;
use weft_transport::TransportConfig;
use weft_units::{Duration, Seed};

use crate::cmd::sim::{Seeds, workers};
use crate::files::{locate, read_table};
use crate::progress;
use crate::testbed::{self, Network};
use weft_report::terminal::{Output, render};

/// Options of the run.
#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    /// The scenario file
    scenario: PathBuf,
    /// The slow-down factor: every time is multiplied by it, every rate divided by it, in
    /// both worlds
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    slower: u32,
    /// Balancers: variants of the scenario, path policies, congestion controls, or several joined by
    /// `+` [default: the scenario's variants, or the scenario as it is]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    balancers: Vec<String>,
    #[command(flatten)]
    seeds: Seeds,
    /// Replace a value for all, such as transport.mtu=1000; may be given again
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// The results of the run.
#[derive(Debug, Serialize)]
struct Results {
    scenario: String,
    about: String,
    slower: u32,
    seeds: Vec<u64>,
    /// The round-trip time of the empty network, slowed down, in microseconds.
    base_rtt_us: f64,
    /// The longest time that the machine delayed the hosts, in microseconds.
    longest_pause_us: f64,
    rows: Vec<WorldRow>,
}

/// A result of one balancer in one world.
#[derive(Debug, Serialize)]
struct WorldRow {
    /// The world: `simulated` or `real`.
    world: &'static str,
    #[serde(flatten)]
    row: Row,
}

/// A balancer and its scenario, slowed down.
struct Contender {
    name: String,
    scenario: Scenario,
    transport: TransportConfig,
}

pub(super) fn run(arguments: &RunArgs, output: Output) -> Result<()> {
    let contenders = contenders(arguments)?;
    if let Some(missing) = weft_lab::requirements().into_iter().find(|r| r.essential && !r.met) {
        bail!("no {}: {}", missing.name, missing.fix);
    }
    let seeds: Vec<u64> = arguments.seeds.each().collect();
    let simulated = simulate(&contenders, &seeds)?;
    let (real, pause) = run_real(&contenders, &seeds)?;
    let first = &contenders[0];
    let results = Results {
        scenario: first.scenario.name.clone(),
        about: first.scenario.about.clone(),
        slower: arguments.slower,
        seeds,
        base_rtt_us: first.transport.base_rtt.as_micros_f64(),
        longest_pause_us: pause.as_micros_f64(),
        rows: rows(&contenders, simulated, real),
    };
    output.value(&results, || text(&results))
}

fn contenders(arguments: &RunArgs) -> Result<Vec<Contender>> {
    let file = &arguments.scenario;
    let (scenario, table, folder) = read_table(&locate(file), &arguments.set)?;
    let variants = if arguments.balancers.is_empty() {
        scenario.variants.clone()
    } else {
        let named = arguments.balancers.iter().map(|name| resolve(name, &scenario.variants));
        named.collect::<Result<Vec<Variant>, _>>()?
    };
    let contender = |name: &str, scenario: &Scenario| -> Result<Contender> {
        let mut scenario = scenario.slowed(arguments.slower)?;
        testbed::shape_of(&scenario)?;
        // Slowdowns over all workloads together are computed from the flows.
        scenario.measure.flows = true;
        let transport = scenario.transport.resolve(&scenario.build_topology()?)?;
        Ok(Contender { name: name.to_owned(), scenario, transport })
    };
    if variants.is_empty() {
        let name = scenario.transport.resolve(&scenario.build_topology()?)?.policy.name();
        return Ok(vec![contender(name, &scenario)?]);
    }
    let each = variants.iter().map(|variant| {
        let scenario = Scenario::from_table(variant.apply(&table), &folder)?;
        contender(&variant.name, &scenario)
    });
    each.collect::<Result<_>>().with_context(|| file.display().to_string())
}

/// Summaries of each contender's runs, one for each seed.
type Runs = Vec<Vec<Summary>>;

fn simulate(contenders: &[Contender], seeds: &[u64]) -> Result<Runs> {
    let of_seeds = |contender: &Contender| {
        let job = |&seed| Job { scenario: contender.scenario.clone(), seed: Seed(seed) };
        seeds.iter().map(job).collect::<Vec<_>>()
    };
    let jobs: Vec<Job> = contenders.iter().flat_map(of_seeds).collect();
    let bar = progress::counting(jobs.len(), "simulating");
    let keep = |index: usize, report| Summary::new(&jobs[index].scenario, report, false);
    let done = run_each(
        &jobs,
        workers(None),
        &Hooks::default(),
        &|done| bar.set_position(done as u64),
        keep,
    );
    bar.finish_and_clear();
    let summaries: Vec<Summary> = done.into_iter().collect::<Result<_, _>>()?;
    Ok(summaries.chunks(seeds.len()).map(<[Summary]>::to_vec).collect())
}

/// Runs all contenders on real packets, seed by seed, so that a change of the machine's load affects all of them.
/// Returns the runs, and the longest time that the machine delayed the hosts.
fn run_real(contenders: &[Contender], seeds: &[u64]) -> Result<(Runs, Duration)> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    // From here on an interrupt must not end the process, because there is a lab to remove.
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
        .context("cannot listen for an interrupt")?;
    let mtu = contenders.iter().map(|contender| contender.transport.mtu).max().unwrap_or(0);
    let network = Network::up(&contenders[0].scenario, mtu, seeds[0])?;
    let bar = progress::counting(contenders.len() * seeds.len(), "on real packets");
    let mut runs = vec![Vec::new(); contenders.len()];
    let mut longest_pause = Duration::ZERO;
    for &seed in seeds {
        for (Contender { name, scenario, .. }, runs) in contenders.iter().zip(&mut runs) {
            let ran = testbed::run(&network, scenario, Seed(seed), &stop);
            let (report, pause) = ran.with_context(|| format!("{name}, seed {seed}"))?;
            longest_pause = longest_pause.max(pause);
            runs.push(Summary::new(scenario, report, false));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok((runs, longest_pause))
}

/// Returns the rows: both worlds of each contender beside each other.
fn rows(contenders: &[Contender], simulated: Runs, real: Runs) -> Vec<WorldRow> {
    let row = |contender: &Contender, world, runs| WorldRow {
        world,
        row: Row::new(
            Place { topology: None, load: None, balancer: contender.name.clone() },
            &contender.scenario,
            runs,
            None,
        ),
    };
    let worlds = simulated.into_iter().zip(real);
    let rows = contenders.iter().zip(worlds).flat_map(|(contender, (simulated, real))| {
        [row(contender, "simulated", simulated), row(contender, "real", real)]
    });
    rows.collect()
}

/// Metrics that the table shows, if any world has them.
const SHOWN: [&str; 17] = [
    "flows",
    "unfinished",
    "slowdown_mean",
    "slowdown_p95",
    "slowdown_p99",
    "training_ms",
    "slow_uplink_share",
    "slow_uplink_load",
    "fast_uplink_load",
    "path_switches",
    "out_of_order_share",
    "reordering_p99_packets",
    "reordering_held_bytes",
    "uplink_queue_p99_bytes",
    "uplink_imbalance",
    "marked_packets",
    "lost_packets",
];

fn text(results: &Results) -> String {
    let Results { scenario, slower, seeds, .. } = results;
    let runs = match seeds.len() {
        1 => format!("seed {}", seeds[0]),
        count => format!("{count} seeds"),
    };
    let mut text = format!("{scenario}, {slower} times slower than written, {runs}\n\n");
    text += &render(&table(&results.rows));
    text += &format!(
        "\nThe machine kept the hosts waiting for {:.1} ms at most; the base round trip is {:.2} ms.\n",
        results.longest_pause_us / 1e3,
        results.base_rtt_us / 1e3
    );
    if seeds.len() > 1 {
        text +=
            "± is half of the 95 % confidence interval of the mean over the seeds (Student's t).\n";
    }
    text
}

fn table(rows: &[WorldRow]) -> Table {
    let any = |metric: &&Metric| {
        let mut values = rows.iter().filter_map(|row| row.row.metrics.get(metric.key));
        values.any(|estimate| estimate.mean != 0.0)
    };
    let shown: Vec<&Metric> =
        METRICS.iter().filter(|metric| SHOWN.contains(&metric.key)).filter(any).collect();
    let mut columns = vec![Column::text("balancer", "balancer"), Column::text("packets", "world")];
    columns.extend(shown.iter().map(|metric| Column::number(metric.heading, metric.key)));
    let mut table = Table::new(columns);
    for WorldRow { world, row } in rows {
        let cells = shown.iter().map(|metric| cell(metric, row.metrics.get(metric.key)));
        let head: [Cell; 2] = [row.cell.balancer.clone().into(), (*world).into()];
        table.push(head.into_iter().chain(cells).collect());
    }
    table
}

fn cell(metric: &Metric, estimate: Option<&Estimate>) -> Cell {
    let Some(&Estimate { mean, half_width }) = estimate else { return Cell::missing() };
    let spread = half_width.map_or_else(String::new, |half| format!(" ±{}", metric.text(half)));
    Cell::new(format!("{}{spread}", metric.text(mean)), mean)
}
