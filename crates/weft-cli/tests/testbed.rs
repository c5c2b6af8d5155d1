//! Scenarios on real packets. Without root or a tool, the tests that need a lab report that they were skipped.
#![allow(clippy::disallowed_methods, reason = "these tests watch a process in real time")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weft_testkit::lab_is_missing;

/// Two of four spines are ten times slower. Half of the flows that keep their first path cross them.
const SLOW_SPINES: &str = r#"
name = "slow spines"

[topology]
kind = "leaf-spine"
leaves = 2
spines = 4
hosts_per_leaf = 2
host_rate = "25Gbps"
uplink_rates = ["10Gbps", "10Gbps", "1Gbps", "1Gbps"]
propagation = "1us"

[transport]
profile = "hopper"
mtu = 4096
retransmission = { rto_min = "10ms", rto_max = "20ms" }
recovery = { rto_low = "10ms" }

[[workload]]
kind = "rounds"
pairs = [[0, 2], [1, 3]]
sizes = ["400KB", "400KB", "400KB", "400KB", "400KB", "400KB", "400KB", "400KB"]
rounds = 2
"#;

/// A scenario file of this test's own, removed when it ends.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-{}-{name}.toml", std::process::id()));
        fs::write(&path, text).unwrap();
        Self(path)
    }

    fn run(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.args(["lab", "run"]).arg(&self.0).args(arguments);
        command
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn hopper_leaves_slow_spines_in_both_worlds() {
    if lab_is_missing("a scenario in both worlds", &[]) {
        return;
    }
    let file = File::new("hopper", SLOW_SPINES);
    let output = file.run(&["--balancers", "single,hopper", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let metric = |world: &str, balancer: &str, key: &str| {
        let rows = found["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["world"] == world && row["balancer"] == balancer);
        row.unwrap()["metrics"][key]["mean"].as_f64().unwrap()
    };
    for world in ["simulated", "real"] {
        for balancer in ["single", "hopper"] {
            assert_eq!(metric(world, balancer, "flows"), 32.0, "{found}");
            assert_eq!(metric(world, balancer, "unfinished"), 0.0, "{found}");
        }
        assert_eq!(metric(world, "single", "path_switches"), 0.0, "{found}");
        assert!(metric(world, "hopper", "path_switches") >= 8.0, "{found}");
        // Flows that keep their path put half of their packets there on average. Those of one run are too few to compare with.
        assert!(metric(world, "hopper", "slow_uplink_share") < 0.7 * 0.5, "{found}");
    }
}

/// Two hosts send more than the uplinks of their leaf carry, in units of one packet and of 44.
const UNITS: &str = r#"
name = "units"

[topology]
kind = "leaf-spine"
leaves = 2
spines = 4
hosts_per_leaf = 2
host_rate = "25Gbps"
uplink_rates = ["10Gbps"]
propagation = "1us"

[transport]
mtu = 1440
congestion = "weft"
unit = "fixed"
retransmission = { rto_min = "10ms", rto_max = "20ms" }

[measure]
reordering = true

[[workload]]
kind = "pairs"
pairs = [[0, 2], [1, 3]]
size = "8MB"

[[variant]]
name = "packets"
transport = { spray_unit = 1 }

[[variant]]
name = "units"
transport = { spray_unit = 44, ack_every = 44 }
"#;

#[test]
fn units_change_the_path_and_queues_and_reordering_are_measured_in_both_worlds() {
    if lab_is_missing("spray units in both worlds", &[]) {
        return;
    }
    let output = File::new("units", UNITS).run(&["--json"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let metric = |world: &str, unit: &str, key: &str| {
        let rows = found["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["world"] == world && row["balancer"] == unit);
        row.unwrap()["metrics"][key]["mean"].as_f64().unwrap()
    };
    for world in ["simulated", "real"] {
        let switches = ["packets", "units"].map(|unit| metric(world, unit, "path_switches"));
        assert!(switches[0] > 20.0 * switches[1], "{world}: {switches:?} changes of path");
        for unit in ["packets", "units"] {
            assert_eq!(metric(world, unit, "unfinished"), 0.0, "{found}");
            assert!((1.0..3.0).contains(&metric(world, unit, "uplink_imbalance")), "{found}");
            // A busy machine sends less than the uplinks carry: no queue, and hardly a packet overtakes another.
            let (queue, held) = if world == "real" { (0.0, 0.0) } else { (1440.0, 1440.0) };
            assert!(metric(world, unit, "uplink_queue_p99_bytes") >= queue, "{found}");
            assert!(metric(world, unit, "reordering_held_bytes") >= held, "{found}");
        }
    }
}

#[test]
fn a_run_that_is_interrupted_leaves_no_namespace() {
    if lab_is_missing("a run that is interrupted", &[]) {
        return;
    }
    // The run takes a minute and more on real packets, and a moment in the simulator.
    let long = SLOW_SPINES.replace("rounds = 2", "rounds = 200");
    let file = File::new("interrupt", &long);
    let arguments = ["--balancers", "hopper", "--set", "run.limit=20s"];
    let mut child = file.run(&arguments).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let namespaces = || {
        let all = fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let own = format!("weft-run-{pid}.");
        all.filter(|entry| entry.file_name().to_string_lossy().starts_with(&own)).count()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while namespaces() < 10 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before its lab was up");
        assert!(Instant::now() < deadline, "{} namespaces after a minute", namespaces());
        weft_testkit::pause();
    }
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    assert_eq!(namespaces(), 0, "{}", said(&output));
}

#[test]
fn a_scenario_that_a_lab_cannot_run_is_refused_before_the_lab_is_built() {
    let fault = "\n[[fault]]\nkind = \"loss\"\nlinks = \"uplinks\"\nprobability = 0.01\n";
    let tree = "topology = { kind = \"fat-tree\" }\n[[workload]]\nkind = \"permutation\"\n";
    for (text, arguments, want) in [
        (format!("{SLOW_SPINES}{fault}"), &[][..], "faults are not carried over"),
        (SLOW_SPINES.into(), &["--balancers", "letflow"][..], "the routers of a lab do ecmp"),
        (SLOW_SPINES.into(), &["--slower", "1000"][..], "1000 times slower"),
        (tree.into(), &[][..], "a lab is a leaf–spine fabric"),
    ] {
        let file = File::new("refused", &text);
        let output = file.run(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains(want), "{want}: {}", said(&output));
    }
}

#[test]
fn a_lab_has_the_rates_it_was_asked_for() {
    if lab_is_missing("rates of a lab", &[]) {
        return;
    }
    let name = format!("rates{}", std::process::id());
    let lab = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.args(["lab", "--name", &name]).args(arguments).output().unwrap()
    };
    let up =
        lab(&["up", "--spines", "2", "--rate", "100Mbps", "--spine-rate", "1=10Mbps", "--json"]);
    let described: Value = serde_json::from_slice(&up.stdout).unwrap();
    let rates = described["links"].as_array().unwrap().iter();
    let rate = |link: &Value| (link["link"].clone(), link["rate"].clone());
    let slow: Vec<_> = rates.map(rate).filter(|(_, rate)| rate == "10Mbps").collect();
    let marks = lab(&["set", "l0-s1", "--queue", "64KB", "--mark-above", "20KB"]);
    let down = lab(&["down"]);
    let links: Vec<_> = slow.iter().map(|(link, _)| link.as_str().unwrap()).collect();
    assert_eq!(links, ["l0-s1", "l0-s1", "l1-s1", "l1-s1"], "{described}");
    let wanted = "l0-s1: limited to 10Mbps, 64KB may wait, marks above 20KB\n";
    assert_eq!(String::from_utf8_lossy(&marks.stdout), wanted, "{}", said(&marks));
    assert!(down.status.success());
    let wrong = lab(&["up", "--spines", "2", "--spine-rate", "2=10Mbps"]);
    assert!(said(&wrong).contains("the lab has spines 0 to 1"), "{}", said(&wrong));
}
