//! `weft sim compare` from the command line.

use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

const SCENARIO: &str = r#"
name = "small"
topology = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 4 }
transport = { mtu = 1000, ack_every = 1, congestion = "dctcp" }
measure = { warm_up = "20us", size_bins = ["10KB", "100KB"] }

[[workload]]
kind = "poisson"
sizes = "solar"
load = 0.4
duration = "300us"

[[variant]]
name = "one-path"
transport = { policy = "single" }

[[variant]]
name = "spray"
transport = { policy = "oblivious" }
"#;

/// A folder with a scenario, removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-compare-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("small.toml"), SCENARIO).unwrap();
        Self(path)
    }

    fn compare(&self, arguments: &[&str]) -> Output {
        let mut command = Command::cargo_bin("weft").unwrap();
        let command = command.current_dir(&self.0).args(["sim", "compare", "small.toml"]);
        command.args(arguments).output().unwrap()
    }

    fn stdout(&self, arguments: &[&str]) -> String {
        let output = self.compare(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn error(&self, arguments: &[&str]) -> String {
        let output = self.compare(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output.stdout));
        text(&output.stderr)
    }

    fn read(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.0.join(file)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Compares with a file of `tests/golden`; `BLESS=1` rewrites the file.
fn assert_golden(name: &str, got: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, got).unwrap();
    }
    let want = std::fs::read_to_string(&file).unwrap();
    assert_eq!(got, want, "{}; BLESS=1 accepts it", file.display());
}

#[test]
fn one_table_shows_every_balancer_at_every_load() {
    let folder = Folder::new("table");
    assert_golden("compare.txt", &folder.stdout(&["--loads", "30%,0.6", "--seeds", "3"]));
    let named = folder.stdout(&["--balancers", "least-queued,spray+swift"]);
    assert!(named.contains("least-queued") && named.contains("spray+swift"), "{named}");
    assert!(named.contains("over least-queued"), "{named}");
}

#[test]
fn the_number_of_threads_changes_no_byte_of_any_result() {
    let folder = Folder::new("threads");
    let results = |threads: &str| {
        let files = ["--html", "page.html", "--runs", "runs.parquet", "--flows", "flows.csv"];
        let arguments = [&["--seeds", "4", "--threads", threads, "--json"][..], &files].concat();
        let json = folder.stdout(&arguments);
        let files = ["page.html", "runs.parquet", "flows.csv"].map(|file| folder.read(file));
        (json, files)
    };
    let one = results("1");
    assert!(one == results("2") && one == results("5"));
    let found: Value = serde_json::from_str(&one.0).unwrap();
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[1]["balancer"], "spray");
    assert_eq!(rows[1]["runs"].as_array().unwrap().len(), 4);
    assert!(rows[1]["metrics"]["slowdown_mean"]["half_width"].as_f64().unwrap() > 0.0);
    let csv = text(&one.1[2]);
    assert!(csv.starts_with("topology,load,balancer,seed,workload,tag,source,"), "{csv}");
    let flows: f64 =
        rows.iter().map(|row| row["metrics"]["flows"]["mean"].as_f64().unwrap() * 4.0).sum();
    assert_eq!(csv.lines().count() as f64, 1.0 + flows);
}

#[test]
fn merged_shards_are_the_bytes_of_the_whole() {
    let folder = Folder::new("shards");
    let part = |number: &str| {
        let (shard, file) = (format!("{number}/3"), format!("{number}.json"));
        let arguments = ["--seeds", "4", "--shard", &shard, "--part", &file, "--part-flows"];
        assert_eq!(folder.stdout(&arguments), "");
    };
    ["1", "2", "3"].into_iter().for_each(part);
    let merge = |arguments: &[&str]| {
        let mut command = Command::cargo_bin("weft").unwrap();
        let command = command.current_dir(&folder.0).args(["sim", "merge"]).args(arguments);
        let output = command.output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let files = ["--html", "page.html", "--runs", "runs.parquet", "--flows", "flows.csv"];
    for form in [&[][..], &["--json"], &["--csv"]] {
        let (code, merged, errors) =
            merge(&[&["3.json", "1.json", "2.json"][..], &files, form].concat());
        assert_eq!(code, Some(0), "{errors}");
        let read = || ["page.html", "runs.parquet", "flows.csv"].map(|file| folder.read(file));
        let merged = (merged, read());
        let whole = folder.stdout(&[&["--seeds", "4"][..], &files, form].concat());
        assert!(merged == (whole, read()), "{form:?}");
    }
    let (code, _, error) = merge(&["1.json", "3.json"]);
    assert_eq!((code, error.as_str()), (Some(1), "error: missing: shard 2/3\n"));
    let (_, _, error) = merge(&["small.toml"]);
    assert!(error.contains("small.toml: not a file that `weft sim compare --part`"), "{error}");
}

#[test]
fn the_page_is_one_file_with_a_plot_of_each_kind() {
    let folder = Folder::new("page");
    folder.stdout(&["--loads", "0.3,0.6", "--html", "out/page.html"]);
    let page = text(&folder.read("out/page.html"));
    // Two plots are over the load; each load has two by size, a distribution and a tail.
    assert_eq!(page.matches("<svg").count(), 2 + 2 * 4);
    assert!(!page.contains("href=") && !page.contains("src="), "it loads nothing");
    for part in ["one-path", "≤ 10 KB", "policy = &quot;oblivious&quot;", "[[workload]]"] {
        assert!(page.contains(part), "{part}");
    }
    let left: Vec<_> = std::fs::read_dir(folder.0.join("out")).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "nothing but the page: {left:?}");
}

#[test]
fn errors_are_reported_before_anything_runs() {
    let folder = Folder::new("wrong");
    for (arguments, want) in [
        (&["--balancers", "ecmp,oblivius"][..], "did you mean \"oblivious\"?"),
        (&["--balancers", "ecmp,ecmp"], "--balancers names \"ecmp\" twice"),
        (&["--loads", "1.5"], "one-path at load 1.5: workload 1 (poisson): load is 1.5, expected"),
        (&["--topologies", "ring"], "--topologies ring: no such file, and no topology \"ring\""),
        (&["--runs", "runs.xlsx"], "runs.xlsx: expected a name that ends in .csv or .parquet"),
        (&["--html", "small.toml/page.html"], "cannot make small.toml: "),
        (&["--flows", "small.toml/flows.csv"], "cannot make small.toml: "),
    ] {
        let error = folder.error(arguments);
        assert!(error.contains(want), "{arguments:?}: {error}");
    }
    assert_eq!(folder.compare(&["--loads", "half"]).status.code(), Some(2));
    let plain = SCENARIO.split("[[variant]]").next().unwrap();
    std::fs::write(folder.0.join("small.toml"), plain).unwrap();
    let error = folder.error(&[]);
    assert!(error.contains("small.toml has no [[variant]] to compare; name balancers"), "{error}");
    let fixed = plain.replace("poisson", "permutation").split("sizes").next().unwrap().to_owned();
    std::fs::write(folder.0.join("small.toml"), fixed).unwrap();
    let error = folder.error(&["--balancers", "ecmp", "--loads", "0.5"]);
    assert!(error.contains("no workload of the scenario has a load to vary"), "{error}");
}

#[test]
fn a_full_disk_is_named_and_the_old_file_stays() {
    let folder = Folder::new("full");
    if !Path::new("/dev/full").exists() {
        return weft_testkit::skip_on_this_machine("a full disk", "there is no /dev/full here");
    }
    let error = folder.error(&["--html", "/dev/full"]);
    assert!(error.contains("cannot write /dev/full: No space left on device"), "{error}");
    // A failed run keeps the file that it would have replaced.
    std::fs::write(folder.0.join("page.html"), "old").unwrap();
    folder.error(&["--html", "page.html", "--loads", "2"]);
    assert_eq!(text(&folder.read("page.html")), "old");
}
