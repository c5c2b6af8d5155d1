//! Measures the cost of a node's record for `weft stat`: a ping-pong whose both ends have one, and
//! one whose ends have none, alternately in one run. `cargo bench -p weft-xrdma --bench show --
//! [ROUNDS]`.
#![allow(clippy::disallowed_methods, reason = "a benchmark runs in real time")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use weft_testkit::link_verbs;
// The archive is made with the library.
use weft_verbs as _;

/// Number of round trips of a run.
const MESSAGES: &str = "20000";

fn main() {
    let rounds = std::env::args().find_map(|word| word.parse::<usize>().ok()).unwrap_or(15);
    assert!(rounds > 0, "one round at least");
    let library = link_verbs(Path::new(env!("CARGO_TARGET_TMPDIR")).join("show"), false);
    // Cargo does not build the examples for a single bench.
    let mut build = Command::new(env!("CARGO"));
    build.args([
        "build",
        "--quiet",
        "--release",
        "--package",
        "weft-xrdma",
        "--example",
        "ping_pong",
    ]);
    assert!(build.status().expect("cargo runs").success(), "the ping-pong does not build");
    let shown = std::env::temp_dir().join(format!("weft-show-{}", std::process::id()));
    println!("64 bytes there and back, {MESSAGES} times, {rounds} runs each way by turns");
    let mut ratios = Vec::new();
    let mut nanos = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        let mut took = [0.0; 2];
        // The first variant changes, so that neither always runs on the warmer machine.
        for turn in [round % 2, 1 - round % 2] {
            let place = if turn == 0 { Path::new("off") } else { &shown };
            took[turn] = one_way(&library, place);
            nanos[turn].push(took[turn]);
        }
        ratios.push(took[1] / took[0]);
    }
    let _ = std::fs::remove_dir_all(&shown);
    let [unseen, seen] = nanos.map(median);
    println!("unseen {unseen:.0} ns one way, seen {seen:.0} ns (medians)");
    ratios.sort_by(f64::total_cmp);
    let (least, most) = (ratios[rounds / 4], ratios[rounds - 1 - rounds / 4]);
    let middle = ratios[rounds / 2];
    println!("seen / unseen: median {middle:.3}, middle half of the runs {least:.3} to {most:.3}");
}

/// Returns the one-way time of a message that the ping-pong prints, in nanoseconds.
fn one_way(library: &Path, shown: &Path) -> f64 {
    let start = |words: &[&str]| {
        let mut command = Command::new(example("ping_pong"));
        command.args(words).env("LD_LIBRARY_PATH", library).env("WEFT_STAT", shown);
        command.stdout(Stdio::piped()).spawn().expect("it starts")
    };
    let mut server = start(&["0"]);
    let mut line = String::new();
    let out = server.stdout.as_mut().expect("piped");
    BufReader::new(out).read_line(&mut line).expect("it says where");
    let port = line.trim().rsplit(':').next().expect("a port");
    let client = start(&[&format!("127.0.0.1:{port}"), "64", MESSAGES]);
    let said = client.wait_with_output().expect("it ends").stdout;
    let _ = server.kill();
    let _ = server.wait();
    let said = String::from_utf8(said).expect("words");
    let way = said.split(": ").nth(1).and_then(|rest| rest.split(" one way").next());
    let way: weft_units::Duration = way.expect("a time").parse().expect("a time");
    let nanos = u32::try_from(way.as_nanos()).expect("far less than seconds");
    nanos.into()
}

/// Returns the path of an example, with this bench's optimisation.
fn example(name: &str) -> PathBuf {
    let bench = std::env::current_exe().expect("a bench has a path");
    let deps = bench.parent().expect("in a folder");
    deps.parent().expect("in the build's folder").join("examples").join(name)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
