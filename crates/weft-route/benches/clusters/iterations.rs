//! Jobs with iterations: without a controller, with one that plans on what was carried, and with one that also reserves
//! links for the coming bursts.

use weft_route::simulate::{Iterations, Outcome, Setup};
use weft_route::{ControllerConfig, ReservationRules};
use weft_units::Duration;

use crate::measure::{all_reduce, change, run};

/// Returns jobs of eight servers that iterate in 12 s, or in 10 to 14 s, in a network that lacks a share of its cables.
pub(crate) fn rows() -> Vec<Setup> {
    let seconds = Duration::from_secs;
    let same = Iterations { shortest: seconds(12), longest: seconds(12), busy_percent: 40 };
    let differing = Iterations { shortest: seconds(10), longest: seconds(14), ..same };
    let setup = |seed, spines, iterations| Setup {
        job_servers: 8,
        side_by_side: 1,
        spines,
        unplanned_percent: 0,
        iterations: Some(iterations),
        windows: 60,
        change_every: 0,
        seed,
        ..all_reduce(1024)
    };
    let seeds = || [1, 2, 3];
    let mut rows: Vec<Setup> = seeds().map(|seed| setup(seed, 32, same)).into();
    rows.extend(seeds().map(|seed| setup(seed, 32, differing)));
    rows.extend(seeds().map(|seed| setup(seed, 48, same)));
    rows.extend(seeds().map(|seed| Setup { unplanned_percent: 25, ..setup(seed, 48, same) }));
    rows
}

/// Runs a cluster in the three ways and prints the duration of iterations beside that alone on the network.
pub(crate) fn compare(number: usize, setup: &Setup) {
    let none = ReservationRules { horizon: Duration::ZERO, ..ReservationRules::default() };
    let measured = ControllerConfig { reservations: none, ..ControllerConfig::default() };
    let controllers = [
        ("none", None),
        ("no reservations", Some(measured)),
        ("reservations", Some(ControllerConfig::default())),
    ];
    println!(
        "{number}: {} GPUs, seed {}, {:?}, {} spines, {} % of the jobs unplanned",
        setup.gpus,
        setup.seed,
        setup.iterations.expect("set above"),
        setup.spines,
        setup.unplanned_percent
    );
    let runs =
        controllers.map(|(name, controller)| (name, run(Setup { controller, ..setup.clone() })));
    let before = runs[1].1.slowdown;
    for (name, outcome) in &runs {
        let last = last_third(outcome);
        println!(
            "  {name:<16} iterations {:.3} of that alone ({:+.1} %), last third {last:.3}; {:.2} GB/s at {} MiB; congested port seconds {}; \
             {} moves, {} kept, {} undone",
            outcome.slowdown,
            change(before, outcome.slowdown),
            outcome.bandwidth[0].1 / 1e9,
            outcome.bandwidth[0].0 >> 20,
            outcome.congested_seconds,
            outcome.stats.moves,
            outcome.stats.kept,
            outcome.stats.undone
        );
    }
}

/// Returns the mean slowdown of the last third of the windows in which iterations ended.
fn last_third(outcome: &Outcome) -> f64 {
    let windows = &outcome.windows[outcome.windows.len() * 2 / 3..];
    let ended: Vec<f64> = windows.iter().map(|row| row.slowdown).filter(|it| *it > 0.0).collect();
    ended.iter().sum::<f64>() / ended.len().max(1) as f64
}
