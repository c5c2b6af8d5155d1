//! Simulations and experiments from the command line.

use std::path::PathBuf;

use assert_cmd::Command;
use serde_json::Value;

use folder::{Folder, text};

mod folder;

const SCENARIO: &str = r#"
name = "small"
about = "Eight hosts send to each other."
topology = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 4 }

[[workload]]
kind = "permutation"
size = "200KB"
"#;

const EXPERIMENT: &str = r#"
title = "Flow completion time by number of paths"
source = "a test"
paper = "More paths are faster."
differs = "Nowhere."

[[axes]]
name = "paths"
key = "transport.paths"
values = [1, 8]

[[measures]]
name = "time"
value = "simulated_us"
unit = "us"

[[claims]]
text = "eight paths take some time"
left = { at = { paths = "8" }, measure = "time" }
is = ">"
right = 0.0

[[claims]]
text = "and a nanosecond is not enough"
left = { at = { paths = "8" }, measure = "time" }
is = "<"
right = 0.001

[scenario]
topology = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 4 }

[[scenario.workload]]
kind = "permutation"
size = "200KB"
"#;

/// Returns a folder with a scenario and an experiment.
fn prepared(name: &str) -> Folder {
    let folder = Folder::new(name);
    folder.write("small.toml", SCENARIO);
    folder.write("experiments/small-fig.toml", EXPERIMENT);
    folder
}

#[test]
fn the_same_scenario_and_seed_give_the_same_bytes_on_one_thread_and_on_two() {
    let folder = prepared("same");
    let run = |threads: &str| {
        folder.stdout(&["sim", "run", "small.toml", "--seeds", "4", "--threads", threads, "--json"])
    };
    let one = run("1");
    assert_eq!(one, run("2"));
    let reports: Value = serde_json::from_str(&one).unwrap();
    let reports = reports["reports"].as_array().unwrap();
    assert_eq!(reports.len(), 4);
    assert_ne!(reports[0]["simulated_us"], reports[1]["simulated_us"], "seeds make a difference");
}

#[test]
fn a_result_names_a_scenario_that_gives_the_same_result_again() {
    let folder = prepared("again");
    let first = folder.json(&["sim", "run", "small.toml", "--set", "transport.paths=3", "--json"]);
    let expanded = first["scenario"].as_str().unwrap();
    assert!(expanded.contains("paths = 3"), "{expanded}");
    folder.write("again.toml", expanded);
    assert_eq!(first, folder.json(&["sim", "run", "again.toml", "--json"]));
}

#[test]
fn tables_have_headings_and_the_scenario() {
    let folder = prepared("tables");
    let shown = folder.stdout(&["sim", "run", "small.toml"]);
    for part in ["small, seed 1: finished", "Flows", "permutation", "Queues", "[topology]"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}

#[test]
fn fast_forward_and_its_check_are_options() {
    let folder = prepared("fast");
    let result = folder.json(&["sim", "run", "small.toml", "--fast-forward", "--check", "--json"]);
    let report = &result["reports"][0];
    assert_eq!(report["fast_forward"]["threshold"], 0.05);
    assert_eq!(report["comparison"]["end"], 0.0, "flows are not skipped, {report}");
    assert!(result["scenario"].as_str().unwrap().contains("compare_exact = true"));
    for (option, key) in [("--check", "compare_exact"), ("--fast-forward=2", "fast_forward is 2")] {
        let output = folder.weft(&["sim", "run", "small.toml", option]);
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains(key), "{option}: {}", text(&output.stderr));
    }
}

#[test]
fn csv_has_a_line_for_each_flow_and_the_page_has_plots() {
    let folder = prepared("csv");
    let csv = folder.stdout(&["sim", "run", "small.toml", "--csv", "--html", "out/page.html"]);
    assert_eq!(csv.lines().count(), 1 + 8, "{csv}");
    assert!(csv.starts_with("workload,tag,source,destination,bytes,start_us"), "{csv}");
    let page = std::fs::read_to_string(folder.path().join("out/page.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 3);
}

#[test]
fn an_unknown_key_is_exit_code_1_with_file_line_and_the_nearest_key() {
    let folder = prepared("unknown");
    let wrong = SCENARIO.replace("size =", "sise =");
    folder.write("wrong.toml", wrong);
    let output = folder.weft(&["sim", "run", "wrong.toml"]);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.contains("wrong.toml:8:"), "{message}");
    assert!(message.contains("did you mean \"size\""), "{message}");

    let output = folder.weft(&["sim", "run", "small.toml", "--set", "transport.pths=3"]);
    assert!(text(&output.stderr).contains("did you mean \"paths\""), "{}", text(&output.stderr));
}

/// The workloads have invalid loads, sizes and flows; each error has a file and a line.
#[test]
fn invalid_traffic_is_exit_code_1_with_file_and_line() {
    let folder = prepared("traffic");
    let network = SCENARIO.split("[[workload]]").next().unwrap();
    folder.write("short.txt", "0 0\n1000 50\n2000 90\n");
    folder.write("far.flows", "2\n0 1 3 1000 0.0\n0 8 3 1000 0.0\n");
    folder.write("cut.flows", "3\n0 1 3 1000 0.0\n0 2 3 1000 0.0\n");
    for (workload, want) in [
        ("kind = \"poisson\"\nload = 1.5", "wrong.toml:8: workload 1 (poisson): load is 1.5"),
        ("kind = \"poisson\"\nload = 0.0", "wrong.toml:8: workload 1 (poisson): load is 0"),
        ("kind = \"poisson\"\nsizes = \"short.txt\"", "short.txt:3: expected a last line that"),
        ("kind = \"flow-list\"\nfile = \"far.flows\"", "far.flows:3: expected a host, 0 to 7"),
        ("kind = \"flow-list\"\nfile = \"cut.flows\"", "cut.flows:1: expected as many flows"),
        ("kind = \"pairs\"\npairs = [[0, 8]]", "wrong.toml:6: workload 1 (pairs): host 8 does not"),
    ] {
        folder.write("wrong.toml", format!("{network}[[workload]]\n{workload}\n"));
        let output = folder.weft(&["sim", "run", "wrong.toml"]);
        assert_eq!(output.status.code(), Some(1), "{workload}");
        assert!(text(&output.stderr).contains(want), "{workload}: {}", text(&output.stderr));
    }
}

#[test]
fn scenario_files_are_listed_with_their_descriptions() {
    let folder = prepared("list");
    let listed = folder.json(&["sim", "list", ".", "experiments", "--json"]);
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert_eq!(listed[0]["about"], "Eight hosts send to each other.");
    let none = folder.stdout(&["sim", "list", "no-such-folder"]);
    assert_eq!(none, "no scenario files in no-such-folder\n");
}

#[test]
fn a_scenario_of_the_program_runs_anywhere_and_a_local_file_wins() {
    let folder = prepared("anywhere");
    let run = ["sim", "run", "link-failure", "--set", "run.limit=50us", "--json"];
    let output = folder.weft(&run);
    let built_in = "weft: link-failure is built-in:scenarios/link-failure.toml\n";
    assert_eq!(text(&output.stderr), built_in);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["reports"][0]["scenario"], "link-failure");

    folder.write("scenarios/link-failure.toml", SCENARIO);
    let output = folder.weft(&run);
    assert_eq!(text(&output.stderr), "weft: link-failure is scenarios/link-failure.toml\n");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["reports"][0]["scenario"], "small");

    let listed = folder.json(&["sim", "list", "--json"]);
    let files = listed.as_array().unwrap().iter().map(|row| row["file"].as_str().unwrap());
    let files: Vec<&str> = files.collect();
    assert!(files.contains(&"scenarios/link-failure.toml"), "{files:?}");
    assert!(files.contains(&"built-in:scenarios/incast.toml"), "{files:?}");
    assert!(!files.contains(&"built-in:scenarios/link-failure.toml"), "{files:?}");

    let unknown = folder.weft(&["sim", "run", "link-failur"]);
    assert!(text(&unknown.stderr).contains("did you mean \"link-failure\"?"));
    let bench = folder.weft(&["experiment", "run", "perf-rdma"]);
    assert!(text(&bench.stderr).contains("needs Weft's repository"), "{}", text(&bench.stderr));
}

/// Returns the repository's root.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Scenarios whose run takes more than ten seconds here. `weft sim list` reads them, and the page that gives their results
/// has the command that runs them.
const LONG: [(&str, &str); 7] = [
    ("fast-forward-gpt-13b-1024", "docs/design/fast-forward.md"),
    ("fast-forward-llama-405b", "docs/design/fast-forward.md"),
    ("ns3-reference", "docs/validation.md"),
    ("overlay-pairs", "docs/overlay.md"),
    ("permutation-8192", "docs/validation.md"),
    ("route-controller", "docs/routing.md"),
    ("uec-all-to-all", "docs/validation.md"),
];

#[test]
fn the_scenarios_of_the_repository_finish_and_the_page_shows_one_of_them() {
    let command = || Command::cargo_bin("weft").unwrap();
    let list = command().current_dir(root()).args(["sim", "list", "--json"]).output().unwrap();
    let listed: Value = serde_json::from_slice(&list.stdout).unwrap();
    let files = listed.as_array().unwrap().iter().map(|row| row["file"].as_str().unwrap());
    let examples: Vec<_> = files.filter(|file| file.starts_with("scenarios/")).collect();
    let long = LONG.map(|(name, _)| format!("scenarios/{name}.toml"));
    assert!(long.iter().all(|file| examples.contains(&file.as_str())), "{listed}");
    for file in examples.into_iter().filter(|file| !long.iter().any(|long| long == file)) {
        let run = command().current_dir(root()).args(["sim", "run", file, "--json"]).output();
        let found: Value = serde_json::from_slice(&run.unwrap().stdout).unwrap();
        assert_eq!(found["reports"][0]["finished"], true, "{file}");
    }
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    for (name, page) in LONG {
        assert!(read(page).contains(name), "{page} does not name {name}");
    }
    let page = read("docs/scenarios.md");
    assert!(page.contains(&format!("```toml\n{}```", read("scenarios/link-failure.toml"))));
    assert!(listed.as_array().unwrap().iter().all(|row| row["about"] != ""), "{listed}");
}

#[test]
fn a_swarm_of_no_worlds_is_refused_and_a_file_that_is_not_there_is_named() {
    let folder = prepared("nothing");
    assert_eq!(folder.weft(&["sim", "swarm", "--seeds", "0"]).status.code(), Some(2));
    let missing = folder.weft(&["experiment", "run", "experiments/none.toml"]);
    assert_eq!(text(&missing.stderr), "error: no file experiments/none.toml\n");
}

#[test]
fn the_swarm_reports_its_number_of_worlds() {
    let folder = prepared("swarm");
    let summary = folder.json(&["sim", "swarm", "--seeds", "20", "--first", "5", "--json"]);
    assert_eq!((summary["first"].as_u64(), summary["seeds"].as_u64()), (Some(5), Some(20)));
    assert!(summary["packets"].as_u64().unwrap() > 1000, "{summary}");
    assert_eq!(summary["failures"].as_array().unwrap().len(), 0, "{summary}");
}

#[test]
fn the_swarm_of_worlds_that_encrypt_reports_forged_packets() {
    let folder = prepared("sealed-swarm");
    let arguments = ["sim", "swarm", "--sealed", "--seeds", "10", "--first", "5", "--json"];
    let summary = folder.json(&arguments);
    assert!(summary["forged"].as_u64().unwrap() > 10, "{summary}");
    assert_eq!(summary["failures"].as_array().unwrap().len(), 0, "{summary}");
    let both = folder.weft(&["sim", "swarm", "--sealed", "--rdma"]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn the_swarm_of_work_requests_reports_their_number() {
    let folder = prepared("rdma-swarm");
    let arguments = ["sim", "swarm", "--rdma", "--seeds", "3", "--first", "5", "--json"];
    let summary = folder.json(&arguments);
    assert!(summary["requests"].as_u64().unwrap() > 1000, "{summary}");
    assert!(summary["counts"]["requests"]["READ"].as_u64().unwrap() > 100, "{summary}");
    assert_eq!(summary["failures"].as_object().unwrap().len(), 0, "{summary}");
    let printed = folder.weft(&arguments[..arguments.len() - 1]);
    assert!(text(&printed.stdout).contains("work requests"), "{printed:?}");
}

#[test]
fn an_experiment_is_found_by_name_and_a_claim_that_does_not_hold_is_exit_code_1() {
    let folder = prepared("experiment");
    let listed = folder.json(&["experiment", "list", "--json"]);
    assert_eq!(listed[0]["name"], "small-fig");

    let output = folder.weft(&["experiment", "run", "small-fig", "--json", "--html", "fig.html"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found[0]["findings"]["rows"].as_array().unwrap().len(), 2);
    let claims: Vec<bool> = found[0]["findings"]["claims"]
        .as_array()
        .unwrap()
        .iter()
        .map(|claim| claim["holds"].as_bool().unwrap())
        .collect();
    assert_eq!(claims, [true, false]);
    assert!(std::fs::read_to_string(folder.path().join("fig.html")).unwrap().contains("<svg"));

    let shown = text(&folder.weft(&["experiment", "run", "small-fig"]).stdout);
    assert!(shown.contains("The paper: More paths are faster."), "{shown}");
    assert!(shown.contains("✗  and a nanosecond is not enough"), "{shown}");
    let csv = text(&folder.weft(&["experiment", "run", "small-fig", "--csv"]).stdout);
    assert!(csv.starts_with("paths,time\n1,"), "{csv}");
}

#[test]
fn all_figures_continue_after_failures_and_each_verdict_is_printed_at_its_end() {
    let folder = prepared("all");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(format!("experiments/{name}.toml")), text).unwrap();
    };
    write("a-garbled", "title = ");
    let claim = r#"text = "and a nanosecond is not enough""#;
    write("b-known", &EXPERIMENT.replace(claim, &format!("{claim}\ndiffers = true")));
    write("c-no-hosts", &EXPERIMENT.replace("hosts_per_leaf = 4", "hosts_per_leaf = 0"));
    let output = folder.weft(&["experiment", "run", "--all", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let verdicts: Vec<_> = found.as_array().unwrap().iter().map(|one| &one["verdict"]).collect();
    assert_eq!(verdicts, ["differs", "not-run", "out-of-date"]);

    let printed = text(&output.stderr);
    let places = [
        "a-garbled.toml: line 1",
        "b-known: differs, 2 of 2 claims as stated, ",
        "c-no-hosts.toml: ",
        "small-fig: out of date, 1 of 2 claims as stated, ",
        "  \u{2717} and a nanosecond is not enough: ",
        "figure      verdict",
        "a-garbled   cannot be run",
        "c-no-hosts  cannot be run",
        "small-fig   out of date",
    ]
    .map(|part| printed.find(part).unwrap_or_else(|| panic!("{part}: {printed}")));
    assert!(places.is_sorted(), "{printed}");

    let output = folder.weft(&["experiment", "run", "c-no-hosts", "b-known"]);
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stderr);
    assert!(printed.contains("b-known: differs, 2 of 2 claims as stated, "), "{printed}");
    write("perf-simulator", "title = ");
    let printed = text(&folder.weft(&["experiment", "run", "--all"]).stderr);
    assert!(printed.contains("a-garbled") && !printed.contains("perf-simulator"), "{printed}");
}

#[test]
fn the_error_of_an_unknown_experiment_has_the_nearest_one() {
    let folder = prepared("absent");
    let output = folder.weft(&["experiment", "run", "small-fog"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("did you mean \"small-fig\"?"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_figures_number_selects_all_its_parts() {
    let folder = prepared("parts");
    let names = |asked: &str| {
        let output = folder.weft(&["experiment", "run", asked, "--json"]);
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let names = found.as_array().unwrap().iter().map(|one| one["name"].clone());
        names.collect::<Vec<_>>()
    };
    for part in ["fig10a", "fig10b", "fig100"] {
        let file = folder.path().join(format!("experiments/{part}.toml"));
        std::fs::write(file, EXPERIMENT).unwrap();
    }
    assert_eq!(names("fig10"), ["fig10a", "fig10b"]);
    assert_eq!(names("fig10b"), ["fig10b"]);
}

#[test]
fn a_claim_that_differs_as_stated_is_no_failure_and_one_that_holds_after_all_is() {
    let folder = prepared("differs");
    let run = |experiment: String| {
        std::fs::write(folder.path().join("experiments/known.toml"), experiment).unwrap();
        let output = folder.weft(&["experiment", "run", "known"]);
        (output.status.code(), text(&output.stdout))
    };
    let differs = |claim: &str| EXPERIMENT.replace(claim, &format!("{claim}\ndiffers = true"));

    let (code, shown) = run(differs(r#"text = "and a nanosecond is not enough""#));
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("≠  and a nanosecond is not enough"), "{shown}");
    let (code, shown) = run(differs(r#"text = "eight paths take some time""#));
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("✗  eight paths take some time"), "{shown}");
}

#[test]
fn the_repositorys_experiments_are_listed_with_their_figures() {
    let mut command = Command::cargo_bin("weft").unwrap();
    let output =
        command.current_dir(root()).args(["experiment", "list", "--json"]).output().unwrap();
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sources: Vec<_> = listed.as_array().unwrap().iter().map(|one| &one["source"]).collect();
    for figure in ["9", "10a", "10b", "11", "12"] {
        let source = Value::from(format!("STELLAR, section 7.2, figure {figure}"));
        assert!(sources.contains(&&source), "{figure}: {sources:?}");
    }
}
