//! Mutations of the simulator's input files.

use std::path::Path;

use weft_sim::experiment::{Experiment, Source};

#[path = "../../weft-units/tests/garble/mod.rs"]
mod garble;
mod properties;

/// The small experiments are evaluated to their claims, which is as far as the fuzz target goes.
#[test]
fn a_small_experiment_has_all_its_parts() {
    for text in golden("tests/golden/experiment") {
        let experiment = Experiment::parse(&String::from_utf8(text).unwrap()).unwrap();
        let points = experiment.points().unwrap();
        let report = serde_json::json!({ "mean": 3, "list": [{ "p99": 0.5 }] });
        let reports = [report.clone(), report];
        let rows = points.iter().map(|point| experiment.measure(point, &reports).unwrap());
        match experiment.source() {
            Source::Simulated => {
                let claims = experiment.evaluate(rows.collect()).unwrap().claims;
                assert_eq!((points.len(), claims.len()), (4, 2));
            }
            Source::Bench(_) => assert_eq!(experiment.claims.len(), 2),
            Source::Missing(_) => assert!(experiment.measures.is_empty()),
        }
    }
}

fn golden(folder: &str) -> Vec<Vec<u8>> {
    garble::files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder))
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

#[test]
fn no_garbled_scenario_breaks_a_promise() {
    let accepted = garble::survive(&golden("tests/golden/scenario"), 20_000, properties::scenario);
    assert!(accepted > 1_000, "only {accepted} were scenarios: the garbling is too wild");
}

#[test]
fn no_garbled_list_of_flows_breaks_a_promise() {
    let accepted = garble::survive(&golden("tests/golden/flows"), 50_000, properties::flows);
    assert!(accepted > 1_000, "only {accepted} were lists: the garbling is too wild");
}

#[test]
fn no_garbled_input_of_another_simulator_breaks_a_promise() {
    type Property = fn(&[u8]) -> bool;
    let targets: [(&str, Property, u64); 5] = [
        ("htsim", properties::htsim, 500),
        ("goal", properties::goal, 500),
        ("goal_binary", properties::goal_binary, 500),
        ("simai", properties::simai, 1_000),
        ("chakra", properties::chakra_trace, 200),
    ];
    for (name, property, min) in targets {
        let golden = golden(&format!("tests/golden/{name}"));
        let accepted = garble::survive(&golden, 20_000, property);
        assert!(accepted > min, "only {accepted} of {name} were graphs: the garbling is too wild");
    }
}

#[test]
fn no_garbled_distribution_of_sizes_breaks_a_promise() {
    let accepted = garble::survive(&golden("tests/golden/sizes"), 50_000, properties::sizes);
    assert!(accepted > 1_000, "only {accepted} were distributions: the garbling is too wild");
}

#[test]
fn no_garbled_experiment_breaks_a_promise() {
    let small = golden("tests/golden/experiment");
    assert!(small.iter().all(|text| properties::experiment(text)));
    let good = [small, golden("../../experiments")].concat();
    let accepted = garble::survive(&good, 5_000, properties::experiment);
    assert!(accepted > 100, "only {accepted} were experiments: the garbling is too wild");
}

#[test]
fn no_garbled_selector_breaks_a_promise() {
    let golden = texts(&["all", "0..16, 20, 40..60/4", "random-uplink", "2-4", "4>2", "7"]);
    let accepted = garble::survive(&golden, 100_000, properties::selectors);
    assert!(accepted > 10_000, "only {accepted} chose something: the garbling is too wild");
}
