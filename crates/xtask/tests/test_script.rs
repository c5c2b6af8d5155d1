//! Tests of `scripts/test.sh` with a `cargo` that only records its arguments.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of programs for the script. It is removed when the value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("weft-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("debug")).unwrap();
        Self(folder)
    }

    fn program(&self, name: &str, text: &str) {
        let file = self.0.join(name);
        fs::write(&file, format!("#!/bin/sh\necho \"$(basename $0) $*\" >>\"$RAN\"\n{text}"))
            .unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs the script with this folder's programs as its build. Returns its output and the recorded commands.
    fn run(&self, cargo: &str) -> (Output, String) {
        self.program("cargo", cargo);
        self.program("debug/weft", "");
        let (script, ran) = (
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/test.sh"),
            self.0.join("ran"),
        );
        let path = format!("{}:{}", self.0.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.arg(script).env("PATH", path).env("RAN", &ran).env("CARGO_TARGET_DIR", &self.0);
        (command.output().unwrap(), fs::read_to_string(ran).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn all_failures_are_named_and_later_steps_run() {
    let folder = Folder::new("failures");
    let cargo = "case \"$*\" in\n\
        clippy*) exit 1;;\n\
        'xtask test') printf 'failures:\\n    one::test\\n    another\\n\\ntest result: FAILED. 3 passed; 2 failed\\n'; exit 1;;\n\
        esac";
    let (output, ran) = folder.run(cargo);
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output_text}");
    for line in [
        "  clippy: cargo clippy",
        "  tests: cargo xtask test",
        "    test another",
        "    test one::test",
    ] {
        assert!(output_text.lines().any(|it| it.starts_with(line)), "no {line:?} in {output_text}");
    }
    for step in ["cargo xtask test", "weft sim swarm", "cargo doc"] {
        assert!(ran.contains(step), "{step:?} did not run: {ran}");
    }
}

#[test]
fn tests_that_were_skipped_are_counted_once_each_and_named() {
    let folder = Folder::new("skips");
    let cargo = "case \"$*\" in 'xtask test')\n\
        for test in 'a lab' 'a guest' 'a lab'; do echo \"SKIPPED $test: no root\" >>\"$WEFT_SKIPPED\"; done\n\
        echo 'test result: ok. 40 passed; 0 failed';; esac";
    let (output, _) = folder.run(cargo);
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output_text}");
    for line in ["  a guest: no root", "  a lab: no root", "OK: 40 tests passed; 2 skipped"] {
        assert!(output_text.lines().any(|it| it.starts_with(line)), "no {line:?} in {output_text}");
    }
}
