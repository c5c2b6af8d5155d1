//! Records of skipped tests: one line each, `SKIPPED TEST: REASON`, on standard error and in the file that
//! `WEFT_SKIPPED` names, which `scripts/test.sh` counts and lists. libtest captures neither.
//!
//! With `WEFT_REQUIRE_ALL` set, as in CI, a test fails if a requirement is missing that root and `scripts/setup.sh`
//! provide.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::process::Command;

use weft_lab::requirements;

/// The requirement of labs that predict the routers' hashes ([`lab_is_missing`]).
pub const HASH_SEED: &str = "settable multipath hash seed";

/// Records that a test is skipped because a program or a permission is missing that root and `scripts/setup.sh`
/// provide.
///
/// # Panics
/// Panics if `WEFT_REQUIRE_ALL` is set or the record cannot be written.
pub fn skip(test: &str, reason: &str) {
    skip_on_this_machine(test, reason);
    let required = env::var_os("WEFT_REQUIRE_ALL").is_some_and(|value| !value.is_empty());
    assert!(!required, "WEFT_REQUIRE_ALL is set, and {test} cannot run: {reason}");
}

/// Records that a test is skipped for a reason that no set-up can change: the kernel or free memory.
///
/// # Panics
/// Panics if the record cannot be written.
pub fn skip_on_this_machine(test: &str, reason: &str) {
    // The line is written by one call because other tests write to the same file.
    let line =
        format!("SKIPPED {test}: {reason}\n").replace("\n", " ").trim_end().to_owned() + "\n";
    io::stderr().write_all(line.as_bytes()).expect("standard error is open");
    if let Some(file) = env::var_os("WEFT_SKIPPED").filter(|file| !file.is_empty()) {
        let file = OpenOptions::new().append(true).create(true).open(file);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .expect("WEFT_SKIPPED can be written");
    }
}

/// Returns `true` and records the skip if this machine lacks a requirement of every lab, or one that `also` names.
///
/// # Panics
/// Panics as [`skip`] does.
pub fn lab_is_missing(test: &str, also: &[&str]) -> bool {
    let wanted = |name: &str, essential: bool| essential || also.contains(&name);
    let missing = requirements().into_iter().find(|it| wanted(&it.name, it.essential) && !it.met);
    if let Some(missing) = &missing {
        let skip = if missing.name == HASH_SEED { skip_on_this_machine } else { skip };
        skip(test, &format!("no {} ({})", missing.name, missing.fix));
    }
    missing.is_some()
}

/// Returns `true` if a program runs and succeeds; otherwise records that the test is skipped because the program's
/// Debian package is missing.
///
/// # Panics
/// Panics as [`skip`] does.
pub fn can_run(test: &str, program: &str, arguments: &[&str], package: &str) -> bool {
    let tried = Command::new(program).args(arguments).output();
    let can = tried.is_ok_and(|output| output.status.success());
    if !can {
        skip(test, &format!("no {package} (sudo apt-get install {package})"));
    }
    can
}

#[cfg(test)]
mod tests {
    /// The test below runs this one in a separate process with other environment variables.
    #[test]
    #[ignore = "a part of the test below"]
    fn a_test_that_is_skipped() {
        super::skip("a part", "nothing is missing\nin truth");
    }

    #[test]
    fn a_skip_is_recorded_despite_capture_and_fails_if_all_is_required() {
        let file = std::env::temp_dir().join(format!("weft-skipped-{}", std::process::id()));
        let run = |required: &str| {
            let mut test = std::process::Command::new(std::env::current_exe().unwrap());
            test.args(["--ignored", "--exact", "skip::tests::a_test_that_is_skipped"]);
            test.env("WEFT_SKIPPED", &file).env("WEFT_REQUIRE_ALL", required).output().unwrap()
        };
        let line = "SKIPPED a part: nothing is missing in truth\n";
        for (required, succeeds) in [("", true), ("1", false)] {
            let output = run(required);
            assert_eq!(output.status.success(), succeeds, "{output:?}");
            assert!(String::from_utf8_lossy(&output.stderr).contains(line), "{output:?}");
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), [line, line].concat());
        std::fs::remove_file(&file).unwrap();
    }
}
