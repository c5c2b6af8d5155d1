//! Whole clusters with and without the controller: Astral's figures 8(c) and 9.
//!
//! `cargo bench -p weft-route --bench clusters -- [row numbers …]`; `weft route simulate` runs the same with other
//! settings.

mod iterations;
mod measure;

use std::time::Instant as Clock;

use measure::{all_reduce, all_to_all, change, figures, run};
use weft_route::simulate::{Outcome, Setup};
use weft_testkit::figure_row;

/// Returns the settings of clusters of the paper's size and beyond.
fn rows() -> Vec<Setup> {
    vec![
        all_reduce(4096),
        all_to_all(16),
        all_reduce(16_384),
        Setup { windows: 16, change_every: 0, ..all_reduce(131_072) },
        all_to_all(4),
        all_to_all(8),
        Setup { seed: 2, ..all_to_all(4) },
        Setup { seed: 3, ..all_to_all(4) },
    ]
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn clock() -> Clock {
    Clock::now()
}

fn main() {
    let requested: Vec<usize> =
        std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    for (number, setup) in rows().into_iter().enumerate() {
        if !requested.is_empty() && !requested.contains(&number) {
            continue;
        }
        let began = clock();
        let off = run(Setup { controller: None, ..setup.clone() });
        let without = began.elapsed().as_secs_f64();
        let began = clock();
        let on = run(setup.clone());
        let with = began.elapsed().as_secs_f64();
        println!(
            "{number}: {} GPUs, {:?}: {} routers, {} flows, {} windows; {without:.1} s without, {with:.1} s with",
            setup.gpus, setup.collective, on.routers, on.flows, setup.windows
        );
        show(&off, &on);
        // Rows with other seeds are further rounds of the same figure.
        figures(&setup, &off, &on).iter().for_each(|(figure, row)| figure_row(figure, row));
        if setup.unplanned_percent > 0 {
            let whole = Setup { unplanned_percent: 0, failed_per_mille: 0, ..setup };
            let planned = run(Setup { controller: None, ..whole });
            bound(&off, &planned);
        }
    }
    let first = rows().len();
    for (number, setup) in (first..).zip(iterations::rows()) {
        if requested.is_empty() || requested.contains(&number) {
            iterations::compare(number, &setup);
        }
    }
}

/// Prints the upper bound of any moves: the same jobs with all ports planned and no cable down, so that every flow has
/// its own path.
fn bound(off: &Outcome, planned: &Outcome) {
    let (size, without) = off.bandwidth[0];
    let with = planned.bandwidth[0].1;
    println!(
        "  all ports planned, all cables up: {:.2} GB/s at {} MiB, {:+.1} %; slowest flows {:.1} Gb/s",
        with / 1e9,
        size >> 20,
        100.0 * (with / without - 1.0),
        planned.windows.last().map_or(0.0, |row| row.pace) / 1e9
    );
}

fn show(off: &Outcome, on: &Outcome) {
    for ((size, without), (_, with)) in off.bandwidth.iter().zip(&on.bandwidth) {
        println!(
            "  {:>5} MiB: {:.2} -> {:.2} GB/s, {:+.1} %",
            size >> 20,
            without / 1e9,
            with / 1e9,
            change(*without, *with)
        );
    }
    let [before, after] = [off, on].map(|run| run.windows.last().map_or(0.0, |row| row.pace));
    println!(
        "  last window: jobs' slowest flows {:.1} -> {:.1} Gb/s, {:+.1} %",
        before / 1e9,
        after / 1e9,
        100.0 * (after / before - 1.0)
    );
    let change = |off: u64, on: u64| change(off.max(1) as f64, on as f64);
    println!(
        "  congested port seconds {} -> {} ({:+.0} %), alarms {} -> {} ({:+.0} %)",
        off.congested_seconds,
        on.congested_seconds,
        change(off.congested_seconds, on.congested_seconds),
        off.alarms,
        on.alarms,
        change(off.alarms, on.alarms)
    );
    let marks: Vec<String> =
        on.windows.iter().take(12).map(|row| (row.marks / 1000).to_string()).collect();
    println!("  thousand marks, window by window: {}", marks.join(" "));
    println!("  {:?}", on.stats);
}
