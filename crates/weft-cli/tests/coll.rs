//! `weft coll perf` on Weft's own device: every collective, on one machine and over kernel routers, and its refusals.
#![allow(clippy::disallowed_methods, reason = "these tests watch programs in real time")]

#[path = "../../weft-rdmacm/tests/programs/library.rs"]
#[expect(dead_code, reason = "programs here load the library by themselves")]
mod library;

use std::process::{Command, Output};

use serde_json::Value;
use weft_lab::{Flow, Lab, LabSpec};
use weft_testkit::{HASH_SEED, lab_is_missing};
// The archives are made with the libraries.
use {weft_rdmacm as _, weft_verbs as _};

use library::LIBRARY;

fn weft(words: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=2", "60", env!("CARGO_BIN_EXE_weft"), "coll", "perf"]).args(words);
    command.args(["--device", "weft", "--libraries"]).arg(&*LIBRARY).env("WEFT_PATHS", "8");
    command.output().unwrap()
}

fn output_text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", output_text(output)))
}

#[test]
fn every_collective_is_measured_and_right_on_every_kind_of_channel() {
    let sizes =
        ["--from", "1KiB", "--to", "1MiB", "--factor", "32", "--time", "30ms", "--ranks", "3"];
    for channels in ["net", "shm"] {
        let output = weft(&[&["all", "--json", "--channels", channels], &sizes[..]].concat());
        assert!(output.status.success(), "{}", output_text(&output));
        let report = json(&output);
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 9 * 3 + 1, "{report}");
        for row in rows {
            assert_eq!(row["wrong"], 0, "{row}");
            let (time, size) = (row["time_us"].as_f64().unwrap(), row["size"].as_f64().unwrap());
            let algbw = row["algbw"].as_f64().unwrap();
            assert!((algbw - size / time / 1e3).abs() < 1e-9, "{row}");
        }
    }
    for (data_type, op) in [("bfloat16", "avg"), ("int32", "max"), ("uint8", "prod")] {
        let output = weft(&[&["--type", data_type, "--op", op], &sizes[..]].concat());
        assert!(output.status.success(), "{}", output_text(&output));
        let text = output_text(&output);
        assert!(text.contains("# Out of bounds values : 0 OK"), "{text}");
        assert!(text.contains(data_type) && text.contains(op), "{text}");
    }
}

#[test]
fn all_reduces_go_by_every_algorithm() {
    let sizes = ["all_reduce", "--from", "1MiB", "--to", "1MiB", "--time", "30ms", "--ranks", "4"];
    for algorithm in ["ring", "tree", "hierarchical:2"] {
        let output = weft(&[&sizes[..], &["--json", "--algorithm", algorithm]].concat());
        assert!(output.status.success(), "{}", output_text(&output));
        let report = json(&output);
        assert_eq!(report["algorithm"], algorithm);
        assert_eq!(report["rows"][0]["wrong"], 0, "{report}");
    }
}

#[test]
fn errors_name_the_wrong_option() {
    for (words, want) in [
        (&["all_reduse", "--ranks", "2"][..], "did you mean \"all_reduce\"?"),
        (&["--ranks", "0"], "a group has at least one"),
        (&["--ranks", "2", "--type", "flaot"], "no type \"flaot\" (known: float"),
        (&["--ranks", "2", "--channels", "nte"], "no kind of channels \"nte\""),
        (&["--ranks", "2", "--from", "2MiB", "--to", "1MiB"], "is more than --to"),
        (&["--ranks", "2", "--lanes", "0"], "0 lanes, expected 1 to 64"),
        (&["--ranks", "2", "--order", "1,1"], "does not name each of 2 ranks once"),
        (
            &["--ranks", "2", "--algorithm", "hierarchical:3"],
            "2 ranks are not servers of so many each",
        ),
        (
            &["--ranks", "2", "--channels", "net", "--algorithm", "hierarchical"],
            "with channels=net no servers are found",
        ),
        (&["--ranks", "2", "--algorithm", "rign"], "no algorithm \"rign\" (known: ring"),
        (&["--rank", "2", "--of", "2", "--at", "127.0.0.1:1"], "rank 2 of 2"),
        (
            &["--rank", "1", "--of", "2", "--at", "127.0.0.1:1", "--timeout", "300ms"],
            "asking rank 0 at 127.0.0.1:1",
        ),
        (&["--ranks", "2", "--lab", "no-such-lab"], "no-such-lab"),
        (&["--ranks", "2", "--ports", "no-such-table"], "--ports no-such-table: No such file"),
        (&["--ranks", "2", "--ports", "Cargo.toml"], "no column \"source\" in the heading"),
    ] {
        let output = weft(words);
        assert!(
            !output.status.success() && output_text(&output).contains(want),
            "{words:?}: {}",
            output_text(&output)
        );
    }
}

#[test]
fn packets_leave_from_planned_ports_and_take_the_planned_spine() {
    const SPINE: usize = 2;
    if lab_is_missing("planned ports in a lab", &[HASH_SEED]) {
        return;
    }
    let name = format!("wpc{}", std::process::id());
    let lab = Lab::up(&LabSpec::named(&name)).unwrap();
    let paths = lab.paths().unwrap();
    let mut table = String::from("source,destination,source_port\n");
    for (source, destination) in [(0, 1), (1, 0)] {
        let flow =
            Flow { source, destination, protocol: 17, source_port: 0, destination_port: 20_480 };
        let port = paths.ports_over(&flow, SPINE, 0xc000).next().unwrap();
        let [from, to] = [source, destination].map(|host| lab.fabric().address(host));
        table += &format!("{from},{to},{port}\n");
    }
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("planned.csv");
    std::fs::write(&file, table).unwrap();
    let file = file.to_str().unwrap();
    let sizes = ["--from", "1MiB", "--to", "1MiB", "--time", "30ms"];
    let output = weft(&[&["--ranks", "2", "--lab", &name, "--ports", file], &sizes[..]].concat());
    assert!(output.status.success(), "{}", output_text(&output));
    let counters = lab.counters().unwrap();
    let up = |leaf: usize, spine: usize| {
        let link = lab.fabric().link(&format!("l{leaf}-s{spine}")).unwrap();
        counters[link].forward.bytes
    };
    for leaf in 0..2 {
        assert!(up(leaf, SPINE) > 3 << 20, "leaf {leaf}: {} bytes", up(leaf, SPINE));
        // Ranks meet over TCP, whose ports are not planned.
        let others: u64 = (0..4).filter(|&spine| spine != SPINE).map(|spine| up(leaf, spine)).sum();
        assert!(others < 100_000, "leaf {leaf} sent {others} bytes over other spines");
    }
}

#[test]
fn both_channels_carry_one_collective_between_hosts_of_a_lab() {
    if lab_is_missing("weft coll perf in a lab", &[]) {
        return;
    }
    let spec = LabSpec { spines: 2, ..LabSpec::named(format!("wcp{}", std::process::id())) };
    let lab = Lab::up(&spec).unwrap();
    let hybrid =
        ["--ranks", "2", "--lab", lab.name(), "--channels", "hybrid", "--shm-rate", "4Gbps"];
    // From 64 blocks on the network carries its part; below, it carries nothing.
    let sizes = ["--from", "1MiB", "--to", "16MiB", "--factor", "16", "--time", "300ms", "--json"];
    let report = json(&weft(&[&hybrid[..], &sizes[..]].concat()));
    let rows = report["rows"].as_array().unwrap();
    assert_eq!((&rows[0]["over_network"], &rows[0]["wrong"]), (&0.0.into(), &0.into()), "{report}");
    assert!(rows[1]["over_network"].as_f64().unwrap() > 0.02, "{report}");
    assert_eq!(rows[1]["wrong"], 0, "{report}");
}

#[test]
fn ranks_of_each_host_of_a_lab_are_a_server() {
    if lab_is_missing("servers in a lab", &[]) {
        return;
    }
    let spec = LabSpec { spines: 2, ..LabSpec::named(format!("wcs{}", std::process::id())) };
    let lab = Lab::up(&spec).unwrap();
    let ranks = ["--ranks", "4", "--lab", lab.name()];
    let sizes = ["--from", "1KiB", "--to", "1MiB", "--factor", "1024", "--time", "30ms"];
    for algorithm in ["hierarchical", "ring"] {
        let words = ["--ranks-per-host", "2", "--algorithm", algorithm, "--json"];
        let report = json(&weft(&[&ranks[..], &sizes, &words].concat()));
        assert_eq!(report["servers"].to_string(), "[[0,1],[2,3]]", "{report}");
        assert_eq!(
            (&report["algorithm"], &report["wrong"]),
            (&algorithm.into(), &0.into()),
            "{report}"
        );
        assert_eq!(report["rows"].as_array().unwrap().len(), 2, "{report}");
    }
    let heading = output_text(&weft(&[&ranks[..], &sizes, &["--ranks-per-host", "2"]].concat()));
    assert!(
        heading.contains("# ranks 4, channels auto, servers [[0, 1], [2, 3]], lanes 2"),
        "{heading}"
    );
    let full = output_text(&weft(&ranks));
    assert!(full.contains("4 ranks, 1 on each host") && full.contains("--ranks 2"), "{full}");
}
