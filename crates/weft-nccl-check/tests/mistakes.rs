//! The check is checked: it passes a correct plugin and finds each mistake of one that is wrong on purpose.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

/// The mistakes with which the plugin was compiled: a second compiler would truncate a library that another test loads.
static COMPILED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Compiles the loopback plugin with a mistake, once.
fn plugin(mistake: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plugins/loopback.c");
    let library =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("libnccl-net-loopback-{mistake}.so"));
    let mut known = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if !known.insert(mistake.to_owned()) {
        return library;
    }
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O1", "-shared", "-fPIC", "-w", &format!("-DMISTAKE={mistake}")])
        .arg(&source)
        .arg("-o")
        .arg(&library);
    let compiled =
        compiler.args(["-lpthread"]).output().expect("a C compiler (apt-get install gcc)");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    library
}

fn check(mistake: &str, words: &[&str]) -> (Output, String) {
    // A busy machine may stop a correct plugin for seconds.
    let timeout = if mistake == "NONE" { "30" } else { "2" };
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-nccl-check"));
    let output = command
        .arg(plugin(mistake))
        .args(["--timeout", timeout])
        .args(words)
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, text)
}

#[test]
fn a_correct_plugin_passes_every_check_in_both_versions() {
    let (output, text) = check("NONE", &[]);
    assert!(output.status.success(), "{text}{output:?}");
    for version in ["v8 ", "v12"] {
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with(version)).collect();
        assert_eq!(lines.len(), 11, "{text}");
        assert!(lines.iter().all(|line| line.contains(" ok ")), "{text}");
    }
}

/// Fails if the check passes the mistake, or names another check or reason than expected.
fn is_found(mistake: &str, by: &str, reason: &str) {
    let (output, text) = check(mistake, &["--interface", "12"]);
    let failures: Vec<&str> = text.lines().filter(|line| line.contains(" FAILED ")).collect();
    assert!(!output.status.success(), "{mistake}: {text}");
    let is_it = |line: &str| line.contains(&format!(" {by} ")) && line.contains(reason);
    assert!(failures.iter().any(|line| is_it(line)), "{mistake}: {text}{output:?}");
}

#[test]
fn each_mistake_is_found_by_the_check_for_it() {
    let mistakes = [
        ("NO_DEVICE", "load", "devices returned 0"),
        ("NO_NAME", "properties", "has no name"),
        ("BLOCKING_ACCEPT", "connect", "must not wait"),
        ("REFUSES_EMPTY", "sizes", "ncclInternalError"),
        ("WRONG_SIZE", "sizes", "test reports"),
        ("LOST_COMPLETION", "sizes", "no progress"),
        ("OUT_OF_ORDER", "sizes", "test reports"),
        ("FLIPPED_BIT", "sizes", "differs at byte"),
        ("OVERRUN", "sizes", "behind its end"),
        ("LATE_ERROR", "sizes", "ncclInternalError"),
        ("FLAG_FIRST", "watched", "(LL128)"),
        ("HALF_WORDS", "watched", "(LL)"),
    ];
    // Most of them wait for a message that never comes.
    std::thread::scope(|scope| {
        for (mistake, by, reason) in mistakes {
            scope.spawn(move || is_found(mistake, by, reason));
        }
    });
}

#[test]
fn a_library_that_is_no_plugin_and_an_unknown_check_are_named() {
    let binary = env!("CARGO_BIN_EXE_weft-nccl-check");
    for (words, reason) in [
        (vec!["/nonexistent.so"], "/nonexistent.so"),
        (vec!["libc.so.6"], "exports none of ncclNetPlugin_v6"),
        (vec!["libc.so.6", "--only", "speeds", "--interface", "12"], "exports none"),
    ] {
        let output = Command::new(binary).args(&words).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(reason), "{text}");
    }
    let output = Command::new(binary)
        .arg(plugin("NONE"))
        .args(["--only", "speeds"])
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("no check \"speeds\"") && text.contains("speed"), "{text}");
}
