//! `weft plan` as people and scripts use it.
#![allow(clippy::disallowed_methods, reason = "a name unique to this process, not a measurement")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

const ASTRAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plans/astral.toml");
const BY_NAME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plans/by-name.toml");
const NCCL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../weft-plan/tests/golden/nccl/nvswitch.xml");

fn weft(arguments: &[&str]) -> Output {
    Command::cargo_bin("weft").unwrap().arg("plan").args(arguments).output().unwrap()
}

fn text(arguments: &[&str]) -> String {
    let output = weft(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&text(&[arguments, &["--json"]].concat())).unwrap()
}

fn refused(arguments: &[&str]) -> String {
    let output = weft(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A folder of this test's own, removed when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-plan-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn show_counts_servers_blocks_rails_and_switches() {
    let value = json(&["show", ASTRAL]);
    assert_eq!(value["servers"].as_array().unwrap().len(), 512);
    assert_eq!((&value["blocks"], &value["rails"]), (&16.into(), &8.into()));
    assert_eq!(value["network"]["switches"].as_array().unwrap().len(), 128 + 64);
    assert!(text(&["show", ASTRAL]).contains("512 servers in 16 blocks"));
    // NCCL's file is one server.
    assert!(text(&["show", NCCL]).contains("4 GPUs"));
}

#[test]
fn ring_orders_by_block_and_writes_files_for_launchers_and_nccl() {
    let folder = Folder::new("ring");
    let [ranks, hosts, graph] = ["ranks", "hosts", "graph.xml"].map(|name| folder.file(name));
    let value =
        json(&["ring", BY_NAME, "--rankfile", &ranks, "--hosts-out", &hosts, "--graph", &graph]);
    let order: Vec<&str> =
        value["order"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(order, ["n1", "n2", "n3", "n4"]);
    assert_eq!(value["blocks"], serde_json::json!([0, 0, 1, 1]), "beside the order");
    let share = |way: &str, key: &str| value["shares"][way][key].as_u64().unwrap();
    assert_eq!(share("ring_listed", "cross_rail"), 8);
    assert_eq!(share("ring_planned", "cross_rail"), 0);
    assert_eq!((share("ring_listed", "cross_block"), share("ring_planned", "cross_block")), (8, 4));
    assert_eq!(
        fs::read_to_string(&hosts).unwrap(),
        "n1 slots=2\nn2 slots=2\nn3 slots=2\nn4 slots=2\n"
    );
    assert!(
        fs::read_to_string(&ranks).unwrap().starts_with("rank 0=n1 slot=0\nrank 1=n1 slot=1\n")
    );
    assert!(fs::read_to_string(&graph).unwrap().starts_with("<graphs version=\"1\">"));
    // A job of three servers, in an order of its own.
    fs::write(&hosts, "# mine\nn4 slots=2\nn1:2\n\nn3\n").unwrap();
    let value = json(&["ring", BY_NAME, "--hostfile", &hosts]);
    assert_eq!(value["order"], serde_json::json!(["n4", "n3", "n1"]));
}

#[test]
fn a_ring_over_shuffled_servers_crosses_spines_a_fraction_as_often() {
    let value = json(&["ring", ASTRAL, "--shuffle", "3", "--servers", "140"]);
    let crossing = |way: &str| value["shares"][way]["cross_spine"].as_f64().unwrap();
    let of = |way: &str| crossing(way) / value["shares"][way]["transfers"].as_f64().unwrap();
    assert!(of("ring_random") > 0.9);
    assert!(of("ring_planned") < 0.25 * of("ring_random"));
}

#[test]
fn ports_are_planned_for_every_queue_pair_and_reach_the_bound() {
    let folder = Folder::new("ports");
    let csv = folder.file("ports.csv");
    let arguments = ["ports", BY_NAME, "--traffic", "all-to-all", "--csv", &csv];
    let value = json(&arguments);
    let rows = value["queue_pairs"].as_array().unwrap();
    // Four servers to three others on two rails, four queue pairs each.
    assert_eq!(rows.len(), 4 * 3 * 2 * 4);
    assert_eq!(value["busiest_planned"], value["bound"]);
    assert!(value["busiest_random"].as_u64() >= value["bound"].as_u64());
    let mut by_pair: BTreeMap<(&str, &str), BTreeSet<u64>> = BTreeMap::new();
    let mut load: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for row in rows {
        let get = |key: &str| row[key].as_str().unwrap();
        let ports = by_pair.entry((get("source"), get("destination"))).or_default();
        assert!(ports.insert(row["source_port"].as_u64().unwrap()), "{row}");
        let path: Vec<&str> =
            row["path"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        path.windows(2).for_each(|link| *load.entry((link[0], link[1])).or_default() += 1);
    }
    assert_eq!(load.values().max(), value["busiest_planned"].as_u64().as_ref());
    let table = fs::read_to_string(&csv).unwrap();
    assert_eq!(table.lines().count(), 1 + rows.len());
    // No flow crosses a link that is down.
    let around = json(&["ports", BY_NAME, "--traffic", "all-to-all", "--down", "leaf-a0/spine-1"]);
    for row in around["queue_pairs"].as_array().unwrap() {
        let path = row["path"].to_string();
        assert!(
            !path.contains("\"leaf-a0\",\"spine-1\"") && !path.contains("\"spine-1\",\"leaf-a0\"")
        );
    }
    assert!(text(&["ports", ASTRAL, "--servers", "64"]).contains("on the busiest link"));
}

#[test]
fn settings_of_other_programs_lead_to_the_ports_of_the_plan() {
    let folder = Folder::new("stacks");
    let csv = folder.file("ports.csv");
    for (stack, qps, list) in [
        ("mooncake", 2, Some("MC_MLX5_QP_UDP_SPORTS")),
        ("mori", 4, Some("MORI_GOR_PORT")),
        ("uccl", 8, Some("UCCL_UDP_SPORT_BASE")),
        ("nccl", 4, None),
        ("weft", 4, None),
    ] {
        let env = folder.file(stack);
        let arguments =
            ["ports", BY_NAME, "--traffic", "all-to-all", "--for", stack, "--csv", &csv];
        let value = json(&[arguments.as_slice(), &["--settings", &env]].concat());
        let rows = value["queue_pairs"].as_array().unwrap();
        assert_eq!(rows.len(), 4 * 3 * 2 * qps, "{stack}");
        let mut load: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for row in rows {
            let server = row["from"].as_str().unwrap();
            let file = fs::read_to_string(format!("{env}/{server}.env")).unwrap();
            let variables: BTreeMap<&str, &str> =
                file.lines().map(|line| line.split_once('=').unwrap()).collect();
            let number = usize::try_from(row["queue_pair"].as_u64().unwrap()).unwrap();
            let port = row["source_port"].as_u64().unwrap();
            match list.map(|name| variables[name].split(',').map(|port| port.parse().unwrap())) {
                // As each program reads its variable.
                Some(mut base) if stack == "uccl" => {
                    let base: u64 = base.next().unwrap();
                    assert_eq!(port, base + 1 + number as u64);
                }
                Some(entries) => {
                    let entries: Vec<u64> = entries.collect();
                    assert_eq!(port, entries[number % entries.len()], "{stack} {row}");
                }
                None => {
                    let name = if stack == "weft" { "WEFT_PORTS" } else { "WEFT_NIC_PORTS" };
                    assert_eq!(variables[name], csv);
                }
            }
            let path: Vec<&str> =
                row["path"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
            path.windows(2).for_each(|link| *load.entry((link[0], link[1])).or_default() += 1);
        }
        assert_eq!(load.values().max(), value["busiest_planned"].as_u64().as_ref(), "{stack}");
        assert!(value["busiest_planned"].as_u64() <= value["busiest_random"].as_u64(), "{stack}");
    }
    let shown = text(&["ports", BY_NAME, "--for", "mooncake"]);
    assert!(shown.contains("# n1\nMC_NUM_QP_PER_EP=2\nMC_MLX5_QP_UDP_SPORTS="), "{shown}");
    assert!(shown.contains("USE_MLX5DV"), "{shown}");
    assert!(refused(&["ports", BY_NAME, "--for", "nccl"]).contains("needs --csv FILE"));
}

#[test]
fn errors_name_the_file_and_the_fault() {
    let folder = Folder::new("wrong");
    let file = folder.file("cluster.toml");
    let good = fs::read_to_string(BY_NAME).unwrap();
    for (from, to, message) in [
        (
            "up = [\"spine-1\", \"spine-2\"]",
            "up = [\"spine-9\"]",
            "no switch \"spine-9\", did you mean",
        ),
        ("name = \"spine-1\"\n", "name = \"spine-1\"\nup = [\"leaf-a0\"]\n", "in a cycle"),
        ("gpus = 2", "gpu = 2", "unknown field `gpu`"),
        ("nics = 2", "nics = 0", "a machine needs at least one NIC"),
    ] {
        assert!(good.contains(from));
        fs::write(&file, good.replacen(from, to, 1)).unwrap();
        let error = refused(&["show", &file]);
        assert!(error.contains("cluster.toml") && error.contains(message), "{error}");
    }
    let xml = folder.file("topo.xml");
    let nccl = fs::read_to_string(NCCL).unwrap();
    // A cluster's machine may be NCCL's file beside it.
    fs::write(&xml, &nccl).unwrap();
    fs::write(&file, "machine.nccl = \"topo.xml\"\n[[server]]\nname = \"a\"\nblock = \"x\"\n")
        .unwrap();
    assert_eq!(json(&["show", &file])["rails"], 4);
    fs::write(&xml, nccl.replacen("link_speed=\"32.0", "link_speed=\"warp", 1)).unwrap();
    assert!(refused(&["ring", &xml]).contains("line 3: <pci> has link_speed=\"warp GT/s PCIe\""));
    let hosts = folder.file("hosts");
    fs::write(&hosts, "n1\nn7\n").unwrap();
    let error = refused(&["ring", BY_NAME, "--hostfile", &hosts]);
    assert!(error.contains("line 2: no server \"n7\", did you mean \"n1\"?"), "{error}");
    assert!(refused(&["ports", NCCL]).contains("names no network"));
    assert!(refused(&["ports", BY_NAME, "--qps", "0"]).contains("a plan has 1 to"));
    assert!(refused(&["ports", BY_NAME, "--down", "leaf-a0/leaf-b0"]).contains("no cable joins"));
    assert!(refused(&["show", "/nonexistent.toml"]).contains("cannot read it"));
}
