//! Weft's plugin passes the check in every version of the interface: threads, processes, and two hosts whose network loses packets.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weft_lab::{Direction, Impairment, Lab, LabSpec};
// The archive is made with the library.
use weft_nccl as _;

static PLUGIN: LazyLock<PathBuf> =
    LazyLock::new(|| weft_testkit::link_nccl(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("nccl")));

fn check(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-nccl-check"));
    command.arg(&*PLUGIN).args(words);
    command
}

/// Fails unless every check passed; returns the lines.
fn passed(output: &Output, lines: usize) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found: Vec<String> = text.lines().map(str::to_owned).collect();
    assert!(
        output.status.success() && found.len() == lines,
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(found.iter().all(|line| line.contains(" ok ")), "{text}");
    found
}

#[test]
fn every_version_passes_with_threads_as_ranks() {
    let words = ["load", "properties", "sizes", "early", "comms", "watched", "close", "reopen"];
    let only = words.into_iter().flat_map(|name| ["--only", name]);
    let output = check(&["--max-size", "512KiB"]).args(only).output().expect("it runs");
    passed(&output, 7 * 8);
}

#[test]
fn the_oldest_and_the_newest_version_pass_with_processes_as_ranks() {
    let words =
        ["--ranks", "processes", "--interface", "6", "--interface", "12", "--max-size", "1MiB"];
    let lines = passed(&check(&words).output().expect("it runs"), 2 * 12);
    let death = lines.iter().find(|line| line.contains(" death ")).expect("a line");
    assert!(death.matches("ncclRemoteError").count() == 2, "{death}");
}

/// Returns two hosts with four paths between them (labs are set up one at a time), and the words that start a rank on each; `None` if this machine has no labs.
fn two_hosts(test: &str, name: &str) -> Option<(Lab, [String; 4])> {
    if weft_testkit::lab_is_missing(test, &[]) {
        return None;
    }
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let lab =
        Lab::up(&LabSpec::named(format!("nccl-{name}-{}", std::process::id()))).expect("a lab");
    let on = |host| format!("ip netns exec weft-{}.{host}", lab.name());
    let words = ["--on".to_owned(), on("h0"), "--on".to_owned(), on("h1")];
    Some((lab, words))
}

#[test]
fn two_hosts_pass_where_packets_are_lost() {
    let Some((mut lab, on)) = two_hosts("NCCL's plugin on two hosts", "loss") else { return };
    let loss = "1%".parse().expect("a probability");
    lab.impair("l0-s1", Direction::Both, &Impairment { loss, ..Impairment::default() })
        .expect("a link");
    let words = ["--ranks", "processes", "--interface", "9", "--max-size", "1MiB"];
    passed(&check(&words).args(&on).output().expect("it runs"), 12);
}

#[test]
fn connections_open_and_messages_pass_beside_dead_paths() {
    let Some((mut lab, on)) = two_hosts("NCCL's plugin and dead paths", "dead") else { return };
    // Of the packets of a TCP connection a quarter has a path that works in both directions.
    ["l0-s1", "l0-s2"].iter().for_each(|link| lab.set_black_hole(link, true).expect("a link"));
    let words = ["--ranks", "processes", "--interface", "12", "--only", "sizes", "--only", "comms"];
    passed(&check(&words).args(&on).output().expect("it runs"), 2);
}

/// The device gives a queue pair up after two seconds without an answer. Both ends then make new ones.
#[test]
fn a_network_that_is_gone_for_longer_than_the_device_waits_costs_no_message() {
    let Some((mut lab, on)) = two_hosts("NCCL's plugin without a network", "gone") else { return };
    let words = [
        "--ranks",
        "processes",
        "--interface",
        "12",
        "--only",
        "steady",
        "--seconds",
        "6",
        "--log",
    ];
    let mut running = check(&words);
    running.args(&on).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = running.spawn().expect("it runs");
    until("messages pass", || {
        lab.counters().expect("counters").iter().any(|link| link.forward.bytes > 8 << 20)
    });
    lab.set_black_hole("h0-l0", true).expect("a link");
    let (sender, lines) = std::sync::mpsc::channel();
    let log = BufReader::new(running.stderr.take().expect("it is piped"));
    std::thread::spawn(move || {
        for line in log.lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    until("a queue pair is replaced", || {
        lines.try_iter().any(|line| line.contains("it is set up again"))
    });
    lab.set_black_hole("h0-l0", false).expect("a link");
    passed(&running.wait_with_output().expect("it ends"), 1);
}

/// A path that died carries messages again once it works and the others die: it is probed for as long as it is dead.
#[test]
#[ignore = "it takes half a minute: make nccl"]
fn paths_that_return_are_used_again() {
    let Some((mut lab, on)) = two_hosts("NCCL's plugin and paths that return", "back") else {
        return;
    };
    let words =
        ["--ranks", "processes", "--interface", "12", "--only", "steady", "--seconds", "25"];
    let mut running = check(&words);
    let running = running.args(&on).stdout(Stdio::piped()).spawn().expect("it runs");
    // The links of the first leaf, by spine; bytes in both directions.
    let carried = |lab: &Lab, spines: [&str; 2]| -> u64 {
        let counters = lab.counters().expect("counters");
        let links = spines.map(|name| lab.fabric().link(name).expect("a link"));
        links.iter().map(|&link| counters[link].forward.bytes + counters[link].backward.bytes).sum()
    };
    let (first, second) = (["l0-s0", "l0-s1"], ["l0-s2", "l0-s3"]);
    let carries = |lab: &Lab, spines, what: &str| {
        let before = carried(lab, spines);
        until(what, || carried(lab, spines) > before + (8 << 20));
    };
    let set = |lab: &mut Lab, spines: [&str; 2], dead| {
        spines.iter().for_each(|link| lab.set_black_hole(link, dead).expect("a link"));
    };
    until("messages pass", || carried(&lab, first) + carried(&lab, second) > 8 << 20);
    set(&mut lab, first, true);
    carries(&lab, second, "two paths carry the messages of four");
    set(&mut lab, first, false);
    set(&mut lab, second, true);
    carries(&lab, first, "the paths that were dead carry them");
    set(&mut lab, second, false);
    passed(&running.wait_with_output().expect("it ends"), 1);
}

/// Waits until `condition`; fails after half a minute.
#[expect(clippy::disallowed_methods, reason = "it watches a program in real time")]
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(30), "not within half a minute: {what}");
        weft_testkit::pause();
    }
}

#[test]
fn the_library_exports_nccl_s_symbols_alone() {
    let output = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&*PLUGIN)
        .output()
        .expect("nm (apt-get install binutils)");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut names: Vec<&str> =
        text.lines().filter_map(|line| line.split_whitespace().last()).collect();
    names.sort_unstable();
    let versions = [10, 11, 12, 6, 7, 8, 9].map(|version| format!("ncclNetPlugin_v{version}"));
    assert_eq!(names, versions);
}
