//! `weft route simulate`: simulates a whole cluster with the controller and without.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde_json::json;
use weft_report::{Cell, Column, Table};
use weft_route::ControllerConfig;
use weft_route::simulate::{Collective, Iterations, Outcome, Setup, Simulation};
use weft_topo::hash::HashAlgorithm;
use weft_units::{ByteCount, Duration};

use crate::progress::counting;
use weft_report::terminal::{Output, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft route simulate                                   4,096 GPUs, all-reduce, with the controller and without
  weft route simulate --gpus 16384 --collective all-to-all --busy 50
  weft route simulate --gpus 131072 --windows 12 --change-every 0
  weft route simulate --gpus 1024 --spines 32 --job-servers 8 --side-by-side 1 --iteration 12s --sending 40
  weft route simulate --controller on --json | jq '.on.windows[] | {marks, moves}'

Flows share links max-min fairly; jobs begin and end, cables are down, and some jobs' source ports are not \
planned. docs/design/route.md says what is simulated and what the paper measured.")]
pub(super) struct Simulate {
    /// GPUs, each with a NIC, eight in a server
    #[arg(long, default_value_t = 4096)]
    gpus: u32,
    /// The traffic of jobs
    #[arg(long, value_parser = collectives(), default_value = "all-reduce")]
    collective: Collective,
    /// Sizes to report, doubled from the first to the last
    #[arg(long, default_value = "64MiB..1GiB", value_name = "FROM..TO")]
    size: String,
    /// Runs without the controller, with it, or both
    #[arg(long, value_enum, default_value_t = Steered::Both)]
    controller: Steered,
    /// Servers of a job; 32 for all-reduce, 16 for all-to-all
    #[arg(long)]
    job_servers: Option<u32>,
    /// Servers of a job that are placed side by side
    #[arg(long)]
    side_by_side: Option<u32>,
    /// Servers that have a job, in percent
    #[arg(long)]
    busy: Option<u32>,
    /// Jobs that draw source ports at random, in percent
    #[arg(long)]
    unplanned: Option<u32>,
    /// Cables between switches that are down, in thousandths
    #[arg(long)]
    failed: Option<u32>,
    /// Spines of up to 4,096 GPUs; fewer than 64 are oversubscribed
    #[arg(long)]
    spines: Option<u32>,
    /// Length of an iteration, or of the shortest and the longest: jobs compute, then send. They announce themselves to the controller, which reserves links for their bursts
    #[arg(long, value_name = "FROM..TO", value_parser = iterations)]
    iteration: Option<(Duration, Duration)>,
    /// Share of an iteration in which a job sends, in percent
    #[arg(long, default_value_t = 50, requires = "iteration")]
    sending: u32,
    /// Plan the flows of planned jobs again whose paths the failed cables have changed, as a controller does for announced jobs
    #[arg(long)]
    replan: bool,
    /// Number of windows of ten seconds
    #[arg(long)]
    windows: Option<u64>,
    /// Number of windows after which a quarter of the jobs end and others begin; 0 for never
    #[arg(long)]
    change_every: Option<u64>,
    /// The hash of switches (`weft list hashes`)
    #[arg(long, default_value = "crc32")]
    hash: HashAlgorithm,
    /// The seed that selects one of the equally likely clusters
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Parses the length of iterations, such as 12s or 10s..14s.
fn iterations(text: &str) -> Result<(Duration, Duration)> {
    let (shortest, longest) = text.split_once("..").unwrap_or((text, text));
    Ok((shortest.parse()?, longest.parse()?))
}

/// Returns the parser of the collectives that are simulated.
fn collectives() -> impl TypedValueParser<Value = Collective> {
    let rings = PossibleValue::new("all-reduce").help("Rings, one on each rail");
    let pairs = PossibleValue::new(ALL_TO_ALL).help("Every server to every other of its job");
    PossibleValuesParser::new([rings, pairs]).map(|name| match name.as_str() {
        ALL_TO_ALL => Collective::AllToAll,
        _ => Collective::AllReduce,
    })
}

const ALL_TO_ALL: &str = "all-to-all";

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Steered {
    /// Without
    Off,
    /// With
    On,
    /// Both
    Both,
}

pub(super) fn run(arguments: &Simulate, output: Output) -> Result<ExitCode> {
    let setup = setup(arguments)?;
    let run = |controller: Option<ControllerConfig>| -> Result<Outcome> {
        let windows = setup.windows;
        let what = if controller.is_some() { "with the controller" } else { "without it" };
        let progress = counting(usize::try_from(windows).unwrap_or(usize::MAX), what);
        let mut simulation = Simulation::new(Setup { controller, ..setup.clone() })?;
        for _ in 0..windows {
            simulation.step()?;
            // The controller's messages are for the page of `weft route serve`.
            drop(simulation.take_events());
            progress.inc(1);
        }
        progress.finish_and_clear();
        Ok(simulation.outcome())
    };
    let wanted = |which| arguments.controller == which || arguments.controller == Steered::Both;
    let off = wanted(Steered::Off).then(|| run(None)).transpose()?;
    let on = wanted(Steered::On).then(|| run(setup.controller.clone())).transpose()?;
    output.value(&json!({ "off": off, "on": on }), || text(off.as_ref(), on.as_ref()))?;
    Ok(ExitCode::SUCCESS)
}

fn setup(arguments: &Simulate) -> Result<Setup> {
    let mut setup = Setup::new(arguments.gpus, arguments.collective);
    setup.sizes = sizes(&arguments.size)?;
    setup.hash = arguments.hash;
    setup.seed = arguments.seed;
    let set = |to: &mut u32, value: Option<u32>| *to = value.unwrap_or(*to);
    set(&mut setup.job_servers, arguments.job_servers);
    set(&mut setup.side_by_side, arguments.side_by_side);
    set(&mut setup.busy_percent, arguments.busy);
    set(&mut setup.unplanned_percent, arguments.unplanned);
    set(&mut setup.failed_per_mille, arguments.failed);
    set(&mut setup.spines, arguments.spines);
    setup.iterations = arguments.iteration.map(|(shortest, longest)| Iterations {
        shortest,
        longest,
        busy_percent: arguments.sending,
    });
    setup.replans = arguments.replan;
    setup.windows = arguments.windows.unwrap_or(setup.windows);
    setup.change_every = arguments.change_every.unwrap_or(setup.change_every);
    Ok(setup)
}

/// Parses a range of sizes, each twice the one before, such as the five of `64MiB..1GiB`; or a single size.
fn sizes(text: &str) -> Result<Vec<ByteCount>> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let (from, to): (ByteCount, ByteCount) = (from.parse()?, to.parse()?);
    if from == ByteCount::ZERO || from > to {
        bail!("sizes {text:?} go from nothing or downward; an example is 64MiB..1GiB");
    }
    let doubled = std::iter::successors(Some(from), |size| Some(ByteCount(size.0.checked_mul(2)?)));
    Ok(doubled.take_while(|&size| size <= to).collect())
}

fn text(off: Option<&Outcome>, on: Option<&Outcome>) -> String {
    let mut text = String::new();
    let mut line = |it: String| writeln!(text, "{it}").expect("writing to a string cannot fail");
    if let Some(any) = on.or(off) {
        line(format!(
            "{} routers, {} flows, {} windows of 10 s",
            any.routers,
            any.flows,
            any.windows.len()
        ));
    }
    let mut table = Table::new(vec![
        Column::text("", "what"),
        Column::number("off", "off"),
        Column::number("on", "on"),
        Column::number("change", "change_percent"),
    ]);
    let mut row = |what: String, show: &dyn Fn(f64) -> String, value: &dyn Fn(&Outcome) -> f64| {
        let cell = |outcome: Option<&Outcome>| {
            outcome.map(value).map_or_else(Cell::missing, |it| Cell::new(show(it), it))
        };
        let change = off.zip(on).map(|(off, on)| 100.0 * (value(on) / value(off) - 1.0));
        let change = change.filter(|it| it.is_finite());
        let change = change.map_or_else(Cell::missing, |it| Cell::new(format!("{it:+.1} %"), it));
        table.push(vec![Cell::new(what, ""), cell(off), cell(on), change]);
    };
    let sizes = on.or(off).map_or(&[][..], |outcome| &outcome.bandwidth);
    for (index, (size, _)) in sizes.iter().enumerate() {
        let gigabytes = |it: f64| format!("{:.2} GB/s", it / 1e9);
        row(format!("bus bandwidth, {}", ByteCount(*size)), &gigabytes, &|it| {
            it.bandwidth[index].1
        });
    }
    let gigabits = |it: f64| format!("{:.1} Gb/s", it / 1e9);
    row("jobs' slowest flows, last window".into(), &gigabits, &|it| {
        it.windows.last().map_or(0.0, |window| window.pace)
    });
    if on.or(off).is_some_and(|outcome| outcome.slowdown > 0.0) {
        let times = |it: f64| format!("{it:.3}");
        row("iterations, 1 is alone".into(), &times, &|it| it.slowdown);
    }
    let whole = |it: f64| format!("{it:.0}");
    row("alarms, once a minute".into(), &whole, &|it| it.alarms as f64);
    row("seconds of congested ports".into(), &whole, &|it| it.congested_seconds as f64);
    row("marks in the last window".into(), &whole, &|it| {
        it.windows.last().map_or(0.0, |window| window.marks as f64)
    });
    line(render(&table));
    if let Some(Outcome { stats, .. }) = on {
        let [none, one, two, three] = stats.cleared_after;
        line(format!(
            "{} moves, {} kept, {} undone, {} refused",
            stats.moves, stats.kept, stats.undone, stats.refused
        ));
        line(format!(
            "alarms over without a move {none}, after one round {one}, two {two}, three {three}; left alone {}",
            stats.gave_up
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_double_from_the_first_to_the_last() {
        let mib =
            |counts: &[u64]| -> Vec<_> { counts.iter().map(|&it| ByteCount::mib(it)).collect() };
        assert_eq!(sizes("64MiB..1GiB").unwrap(), mib(&[64, 128, 256, 512, 1024]));
        assert_eq!(sizes("8MiB").unwrap(), mib(&[8]));
        assert!(sizes("2MiB..1MiB").is_err() && sizes("0..1MiB").is_err());
    }
}
