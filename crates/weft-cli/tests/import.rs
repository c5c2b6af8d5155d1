//! `weft sim import`: what it says of the files of other simulators, the scenarios that it writes, and its errors.

use std::path::Path;

use serde_json::{Value, json};

use folder::{Folder, text};

mod folder;

/// Returns a good input of weft-sim, or a topology of weft-topo.
fn golden(name: &str) -> Vec<u8> {
    let owner = if name.ends_with(".topo") { "weft-topo" } else { "weft-sim" };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(owner).join("tests/golden");
    std::fs::read(folder.join(name)).unwrap()
}

/// Returns a good input with one part replaced.
fn damaged(name: &str, part: &str, by: &str) -> Vec<u8> {
    let good = text(&golden(name));
    assert!(good.contains(part), "{name} has {part}");
    good.replacen(part, by, 1).into_bytes()
}

/// Imports the first of these inputs of weft-sim and runs the scenario; returns the account and the run's report.
fn import_and_run(inputs: &[&str]) -> (Value, Value) {
    let name = |input: &str| Path::new(input).file_name().unwrap().to_str().unwrap().to_owned();
    let file = name(inputs[0]);
    let folder = Folder::new(&file);
    for input in inputs {
        folder.write(&name(input), golden(input));
    }
    let account = folder.json(&["sim", "import", &file, "--out", "job.toml", "--json"]);
    let written = std::fs::read_to_string(folder.path().join("job.toml")).unwrap();
    assert_eq!(account["scenario"], written, "{file}");
    let mut found =
        folder.json(&["sim", "run", "job.toml", "--set", "measure.flows=true", "--json"]);
    (account, found["reports"][0].take())
}

#[test]
fn each_format_is_accounted_for_and_its_scenario_runs() {
    let chakra = ["chakra/pair.0.et", "chakra/pair.1.et", "chakra/pair.json"];
    // The messages and the collectives of the report are those of the file.
    for (inputs, taken, left, flows, collectives) in [
        (
            &["htsim/triggers.cm"][..],
            json!({ "flows": 6, "triggers (barrier)": 1, "triggers (multishot)": 1, "triggers (oneshot)": 1 }),
            json!({ "prio (flows have no priorities)": 1 }),
            6,
            0,
        ),
        (
            &chakra[..],
            json!({
                "all_gather (parts of ranks)": 2, "all_reduce (parts of ranks)": 2, "computations": 2,
                "memory loads": 1, "memory stores": 1, "metadata": 2, "receives": 1, "sends": 1,
            }),
            json!({
                "attribute comm_priority": 2, "attribute involved_dim": 1,
                "the work of nodes of type 8 (only their recorded duration is kept)": 1,
            }),
            1,
            2,
        ),
        (
            &["goal/exchange.goal"],
            json!({ "calc": 2, "irequires": 1, "recv": 3, "requires": 3, "send": 3 }),
            json!({ "nic other than 0 (a rank has the NICs of its host)": 1 }),
            3,
            0,
        ),
        (
            &["goal_binary/exchange.bin"],
            json!({ "calc": 2, "irequires": 1, "recv": 3, "requires": 3, "send": 3 }),
            json!({ "nic other than 0 (a rank has the NICs of its host)": 1 }),
            3,
            0,
        ),
        (
            &["simai/two_layers.txt"],
            json!({
                "all_reduce of replicas of experts": 1, "all_reduce of tensor ranks": 2,
                "alltoall of ranks that share experts": 2, "layers": 2, "reduce_scatter of replicas": 1,
            }),
            json!({}),
            0,
            22,
        ),
        (&["small.topo"], json!({ "cables": 3, "hosts": 2, "switches": 2 }), json!({}), 2, 0),
        (&["simai.topo"], json!({ "cables": 8, "hosts": 4, "switches": 3 }), json!({}), 4, 0),
    ] {
        let (account, report) = import_and_run(inputs);
        assert_eq!((&account["taken"], &account["left"]), (&taken, &left), "{inputs:?}");
        assert_eq!(report["finished"], true, "{inputs:?}");
        // A report without flows leaves them out.
        assert_eq!(report["flows"].as_array().map_or(0, Vec::len), flows, "{inputs:?}");
        let iterations = report["workloads"][0]["iterations"].as_array().unwrap();
        assert_eq!(iterations.len(), collectives, "{inputs:?}");
    }
}

#[test]
fn a_list_of_flows_is_imported_with_its_starts() {
    let folder = Folder::new("flows");
    folder.write("web.flows", b"3\n0 1 3 2000 2.0\n1 2 3 1000 2.00001\n2 0 3 9000 2.00002\n");
    let shown = folder.stdout(&["sim", "import", "web.flows", "--out", "web.toml"]);
    assert!(shown.contains("a list of flows of ns-3"), "{shown}");
    let found = folder.json(&["sim", "run", "web.toml", "--set", "measure.flows=true", "--json"]);
    let flows = found["reports"][0]["flows"].as_array().unwrap();
    let mut starts: Vec<f64> = flows.iter().map(|it| it["start_us"].as_f64().unwrap()).collect();
    starts.sort_by(f64::total_cmp);
    assert_eq!(starts, [0.0, 10.0, 20.0]);
}

#[test]
fn the_account_is_printed_with_the_command_that_runs_it() {
    let folder = Folder::new("printed");
    folder.write("triggers.cm", golden("htsim/triggers.cm"));
    let import = ["sim", "import", "triggers.cm", "--out", "job.toml"];
    let shown = folder.stdout(&import);
    let place = |part: &str| shown.find(part).unwrap_or_else(|| panic!("{part}: {shown}"));
    let places = [
        "triggers.cm: htsim\n",
        "bytes sent",
        "1.5 MB\n",
        "taken\n",
        "6  flows\n",
        "1  triggers (oneshot)\n",
        "left out\n",
        "1  prio (flows have no priorities)\n",
        "note: start is read in microseconds",
        "the last flow starts at 40 us",
        "scenario: weft sim run job.toml\n",
    ];
    assert!(places.map(place).is_sorted(), "{shown}");

    let other_unit = folder.stdout(&[&import[..], &["--set", "start_unit=ps"]].concat());
    assert!(other_unit.contains("starts at 0.00004 us"), "{other_unit}");
    let written = std::fs::read_to_string(folder.path().join("job.toml")).unwrap();
    assert!(written.contains("start_unit = \"ps\""), "{written}");
    let unwritten = folder.stdout(&["sim", "import", "triggers.cm"]);
    assert!(unwritten.contains("\nscenario\nname = \"triggers.cm\"\n"), "{unwritten}");
}

#[test]
fn a_broken_file_is_exit_code_1_with_file_place_and_expectation() {
    let cut = |name: &str, bytes: usize| golden(name)[..bytes].to_vec();
    let folder = Folder::new("broken");
    folder.write("pair.1.et", cut("chakra/pair.1.et", 200));
    folder.write("pair.json", golden("chakra/pair.json"));
    let header = b"Nodes 2\nConnections 1\n";
    let wide = [&header[..], &vec![b'#'; 2 << 20], b"\n0->1 start 0 size 1\n"].concat();
    for (name, content, want) in [
        ("size.cm", damaged("htsim/triggers.cm", "200000", "big"), "size.cm:5: expected src->dst"),
        ("host.cm", damaged("htsim/triggers.cm", "0->1", "0->6"), "host.cm:4: expected two"),
        (
            "fires.cm",
            damaged("htsim/triggers.cm", "count 2", "count 3"),
            "fires.cm:12: trigger 2: ",
        ),
        ("wide.cm", wide, "wide.cm:3: the line is longer than 1048576 bytes"),
        ("huge.cm", b"Nodes 4294967295\nConnections 1\n0->1 start 0 size 1\n".into(), "huge.cm: "),
        (
            "label.goal",
            damaged("goal/exchange.goal", "b requires a", "b requires z"),
            "label.goal:7: ",
        ),
        ("wait.goal", damaged("goal/exchange.goal", "tag 8", "tag 9"), "wait.goal:8: this node of"),
        ("cut.bin", cut("goal_binary/exchange.bin", 300), "cut.bin: byte 293: the file ends here"),
        ("pair.0.et", golden("chakra/pair.0.et"), "pair.1.et: byte 200: the file ends 46 bytes"),
        (
            "kind.txt",
            damaged("simai/two_layers.txt", "ALLTOALL_EP", "GATHER"),
            "kind.txt:4: expected",
        ),
        ("rate.topo", damaged("small.topo", "25Gbps", "fast"), "rate.topo: line 4: found \"fast\""),
        (
            "host.flows",
            damaged("flows/list.flows", "5 6 3", "5 x 3"),
            "host.flows:3: expected a host",
        ),
        ("words.txt", b"hello\nworld\n".into(), "words.txt: its format is not recognised"),
        ("noise.txt", b"\xff\xfe\n".into(), "noise.txt:1: "),
        ("empty.txt", vec![], "empty.txt: its format is not recognised"),
    ] {
        folder.write(name, &content);
        let output = folder.weft(&["sim", "import", name, "--out", "job.toml"]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {message}");
        assert!(message.starts_with(&format!("error: {want}")), "{name}: {message}");
        assert_eq!(message.lines().count(), 1, "{name}: {message}");
        assert!(!folder.path().join("job.toml").exists(), "{name}");
    }
    let absent = folder.weft(&["sim", "import", "none.cm"]);
    assert!(text(&absent.stderr).starts_with("error: none.cm: "), "{}", text(&absent.stderr));
}

#[test]
fn a_setting_that_does_not_exist_is_an_error_that_names_the_nearest_one() {
    let folder = Folder::new("setting");
    folder.write("triggers.cm", golden("htsim/triggers.cm"));
    let output = folder.weft(&["sim", "import", "triggers.cm", "--set", "start_units=ps"]);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.contains("start_units") && message.contains("start_unit"), "{message}");
}
