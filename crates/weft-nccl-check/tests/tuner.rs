//! Weft's tuner answers from a plan in every version of the interface, and the check of tuners finds mistakes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

// The archive is made with the library.
use weft_nccl as _;

static TUNER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nccl-tuner");
    weft_testkit::link_nccl(&folder).with_file_name("libnccl-tuner-weft.so")
});

const HEADING: &str = "collective,servers,ranks,from_bytes,to_bytes,algorithm,protocol,channels";

/// Writes a plan and returns its path.
fn plan(name: &str, rows: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, format!("{HEADING}\n{rows}")).unwrap();
    path
}

fn check(plan: Option<&Path>, communicator: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-nccl-check"));
    command.arg(&*TUNER).args(["--tuner", communicator, "--log"]).env_remove("WEFT_NCCL_TUNER");
    if let Some(plan) = plan {
        command.env("WEFT_NCCL_TUNER", plan);
    }
    command.output().unwrap()
}

/// Returns the choices of each version, the oldest first.
fn choices(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    let of_line = |line: &str| line.split_once(" ok ").expect(line).1.trim().to_owned();
    let choices: Vec<String> = text.lines().map(of_line).collect();
    assert_eq!(choices.len(), 4, "{text}");
    choices
}

#[test]
fn a_plan_decides_between_rings_and_trees_and_nothing_else_changes() {
    let by_nccl = choices(&check(None, "16/2"));
    assert!(by_nccl.iter().all(|choice| choice == &by_nccl[0]), "{by_nccl:?}");
    assert!(by_nccl[0].starts_with("0 B: tree/ll, ") && by_nccl[0].ends_with("ring/simple"));

    let rows = "all_reduce,2,16,0,1048576,ring,,\nall_reduce,2,16,1048576,,tree,,\n";
    let reversed = plan("reversed.csv", rows);
    let planned = choices(&check(Some(&reversed), "16/2"));
    // Version 2 takes an algorithm only with a protocol.
    assert_eq!(planned[0], by_nccl[0]);
    for choice in &planned[1..] {
        assert!(choice.starts_with("0 B: ring/ll, "), "{choice}");
        assert!(
            choice.contains(", 1048576 B: tree/") && choice.ends_with("tree/simple"),
            "{choice}"
        );
    }
    // Other communicators are NCCL's.
    let others = ["16/4", "8/2"].map(|of| [check(None, of), check(Some(&reversed), of)]);
    others.iter().for_each(|[without, with]| assert_eq!(choices(without), choices(with)));
}

#[test]
fn protocols_and_channels_of_a_plan_are_taken_in_every_version() {
    let fixed = plan("fixed.csv", "all_reduce,2,16,0,,tree,ll128,8\n");
    let planned = choices(&check(Some(&fixed), "16/2"));
    assert_eq!(planned, ["0 B: tree/ll128/8"; 4]);
}

#[test]
fn a_bad_plan_is_named_with_its_line_and_nccl_chooses() {
    let without = choices(&check(None, "16/2"));
    let bad = plan("bad.csv", "all_reduce,2,16,0,,ring,,\nall_reduce,2,16,0,,star,,\n");
    let missing = Path::new("/nonexistent/plan.csv");
    let expected =
        ["bad.csv: line 3: algorithm is \"star\"", "/nonexistent/plan.csv: No such file"];
    for (plan, reason) in [bad.as_path(), missing].into_iter().zip(expected) {
        let output = check(Some(plan), "16/2");
        assert_eq!(choices(&output), without);
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(log.contains(reason) && log.contains("NCCL chooses"), "{log}");
    }
}

#[test]
fn the_library_exports_the_tuner_s_symbols_alone() {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(&*TUNER).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(names, [2, 3, 4, 5].map(|version| format!("ncclTunerPlugin_v{version}")));
}

/// Compiles the mistaken tuner and checks it.
fn mistaken(mistake: &str) -> Output {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plugins/tuner.c");
    let library =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("libnccl-tuner-{mistake}.so"));
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-shared", "-fPIC", "-w", &format!("-DMISTAKE={mistake}")]);
    let compiled = compiler.arg(&source).arg("-o").arg(&library).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-nccl-check"));
    command.arg(library).args(["--tuner", "16/2"]).output().unwrap()
}

#[test]
fn mistakes_of_tuners_are_found() {
    let correct = mistaken("NONE");
    assert!(correct.status.success(), "{correct:?}");
    for (mistake, reason) in [
        ("REVIVES", "algorithm 4, protocol 2: NCCL cannot use it"),
        ("NOT_A_NUMBER", "a cost of NaN"),
        ("OVERRUN", "it wrote behind the table"),
        ("NOTHING_LEFT", "nothing is left to choose"),
        ("CHANNELS", "65 channels"),
        ("FAILS", "getCollInfo returned 3"),
        ("FORGETS", "two communicators get different answers"),
    ] {
        let output = mistaken(mistake);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.code() == Some(1) && text.contains(reason), "{mistake}: {text}");
    }
    let none = Command::new(env!("CARGO_BIN_EXE_weft-nccl-check"))
        .args(["libc.so.6", "--tuner", "16/2"])
        .output()
        .unwrap();
    assert_eq!(none.status.code(), Some(2), "{none:?}");
}
