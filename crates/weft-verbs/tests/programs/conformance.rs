//! rdma-core's own tests (Debian's python3-pyverbs), run on this device.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::library::program;
use crate::pair::alone;

/// The folder in which Debian installs them, some compressed.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";

/// All modules except those of the drivers of mlx5 and EFA.
const MODULES: &[&str] = &[
    "addr",
    "atomic",
    "cq",
    "cq_events",
    "cqex",
    "cuda_dmabuf",
    "device",
    "flow",
    "fork",
    "mr",
    "odp",
    "parent_domain",
    "pd",
    "qp",
    "qpex",
    "rdmacm",
    "relaxed_ordering",
    "rss_traffic",
    "shared_pd",
    "tag_matching",
];

/// The results of a module's tests.
#[derive(Debug, Default)]
struct Outcome {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// Runs the tests on a device that `equip` gives a program; none may fail. Returns the page with the results.
pub(crate) fn check(device: &str, equip: impl Fn(&mut Command)) -> String {
    assert!(Path::new(TESTS).exists(), "no {TESTS} (apt-get install python3-pyverbs)");
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(concat!(env!("CARGO_CRATE_NAME"), "-pyverbs"));
    let unpacked = Command::new("sh")
        .args(["-c", "rm -rf \"$1\" && mkdir -p \"$1\" && cp -r \"$2\" \"$1\" && gunzip -f \"$1\"/tests/*.gz"])
        .arg("sh")
        .args([&folder, Path::new(TESTS)])
        .status();
    assert!(unpacked.is_ok_and(|status| status.success()));
    let mut table = String::new();
    let (mut passed, mut reasons) = (0, BTreeMap::new());
    for module in MODULES {
        let name = format!("test_{module}");
        let words = ["/usr/bin/python3", "tests/run_tests.py", "--dev", device, "-v", &name];
        let mut tests = program(&words);
        equip(tests.current_dir(&folder));
        let ran = alone(|| tests.output().unwrap());
        let output = String::from_utf8_lossy(&ran.stderr);
        let Outcome { passed: ok, failed, skipped } = outcome(&output, &mut reasons);
        assert!(failed == 0 && ran.status.success(), "{module}: {failed} failed\n{output}");
        writeln!(table, "| `{name}` | {ok} | {failed} | {skipped} |").unwrap();
        passed += ok;
    }
    assert!(passed >= 85, "{passed} passed");
    page(&table, &reasons)
}

/// Counts the results of the tests, and the reasons of skipped ones.
fn outcome(output: &str, reasons: &mut BTreeMap<String, usize>) -> Outcome {
    let mut outcome = Outcome::default();
    for result in output.lines().filter_map(|line| Some(line.rsplit_once("... ")?.1)) {
        match result {
            "ok" => outcome.passed += 1,
            "FAIL" | "ERROR" => outcome.failed += 1,
            _ => {
                let Some(reason) = result.strip_prefix("skipped ") else { continue };
                outcome.skipped += 1;
                let reason = reason.trim_matches(['\'', '"']).to_owned();
                *reasons.entry(reason).or_default() += 1;
            }
        }
    }
    outcome
}

fn page(table: &str, reasons: &BTreeMap<String, usize>) -> String {
    let mut page = format!(
        "# rdma-core's own tests\n\n\
         The tests of Debian's `python3-pyverbs` on Weft's device, by module; those of the drivers of mlx5 and EFA\n\
         are left out. Written by `BLESS=1 cargo test -p weft-verbs --test programs rdma_core`; `make test` runs\n\
         them and allows no failure. A skipped test needs a feature that the device reports as missing, or one that\n\
         the machine lacks.\n\n\
         | module | passed | failed | skipped |\n| --- | ---: | ---: | ---: |\n{table}\n\
         | skipped because | tests |\n| --- | ---: |\n"
    );
    for (reason, tests) in reasons {
        writeln!(page, "| {reason} | {tests} |").unwrap();
    }
    page
}
