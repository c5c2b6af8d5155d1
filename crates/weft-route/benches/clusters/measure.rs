//! Settings and figures of the cluster benchmark.

use weft_route::simulate::{Collective, Outcome, Setup, Simulation};
use weft_testkit::{Value, json};

/// Returns the paper's test as it describes it: collectives alone, all with random ports of a library, and the
/// controller active until there is no alarm. Jobs have `job_servers` servers and use half of the cluster.
pub(crate) fn all_to_all(job_servers: u32) -> Setup {
    Setup {
        job_servers,
        side_by_side: (job_servers / 4).max(1),
        busy_percent: 50,
        unplanned_percent: 100,
        windows: 40,
        change_every: 0,
        ..Setup::new(1024, Collective::AllToAll)
    }
}

/// Returns the settings of a cluster whose jobs run all-reduces.
pub(crate) fn all_reduce(gpus: u32) -> Setup {
    Setup::new(gpus, Collective::AllReduce)
}

/// Runs a cluster.
pub(crate) fn run(setup: Setup) -> Outcome {
    Simulation::new(setup).expect("a cluster that can be built").run().expect("its jobs start")
}

/// Returns the change from the first value to the second, in percent.
pub(crate) fn change(before: f64, after: f64) -> f64 {
    100.0 * (after / before - 1.0)
}

/// Returns a cluster's rows of figures 8(c) and 9, without and with the controller, each with its figure's name.
/// Figures 8(a) and 8(b) are simulated packet by packet.
pub(crate) fn figures(setup: &Setup, off: &Outcome, on: &Outcome) -> Vec<(&'static str, Value)> {
    let cluster = match setup.collective {
        Collective::AllReduce => format!("{} GPUs", setup.gpus),
        _ => format!("groups of {} servers", setup.job_servers),
    };
    let mut rows = vec![];
    let fewer = |off: u64, on: u64| -change(off.max(1) as f64, on as f64);
    rows.push((
        "astral-fig8c",
        json!({
            "cluster": cluster, "alarms fewer": fewer(off.alarms, on.alarms),
            "congested less": fewer(off.congested_seconds, on.congested_seconds),
        }),
    ));
    rows.push(("astral-fig9a", rounds(&cluster, on)));
    for (window, row) in on.windows.iter().take(12).enumerate() {
        rows.push((
            "astral-fig9b",
            json!({ "window": window, "cluster": cluster, "marks": row.marks }),
        ));
    }
    rows
}

/// Returns the share of alarms that ended after at most one and two rounds of moves, in percent.
fn rounds(cluster: &str, on: &Outcome) -> Value {
    let after = on.stats.cleared_after.map(|alarms| alarms as f64);
    let all = after.iter().sum::<f64>().max(1.0);
    json!({
        "cluster": cluster, "after one": 100.0 * (after[0] + after[1]) / all,
        "after two": 100.0 * (after[0] + after[1] + after[2]) / all,
        "undone": on.stats.undone, "moves": on.stats.moves,
    })
}
