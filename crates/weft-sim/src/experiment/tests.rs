use std::path::{Path, PathBuf};

use weft_units::{Duration, Seed};

use super::*;
use crate::Scenario;

const TEXT: &str = r#"
    title = "t"
    source = "s"
    paper = "p"
    differs = "d"
    seeds = [1, 2]
    scenario.transport.paths = 1
    scenario.fault = [{ kind = "loss" }]
    axes = [
        { name = "policy", key = "transport.policy", values = ["single", "oblivious"] },
        { name = "paths", key = "transport.paths", values = [4, 128] },
    ]
    measures = [{ name = "queue", value = "queues.0.mean", scale = 0.5, unit = "KB" }]
    [[claims]]
    text = "more paths, shorter queues"
    left = { at = { policy = "oblivious", paths = "128" }, measure = "queue" }
    is = "<"
    right = { at = { policy = "oblivious", paths = "4" }, measure = "queue" }
"#;

fn report(mean: f64) -> Value {
    serde_json::json!({ "queues": [{ "mean": mean }] })
}

#[test]
fn the_points_are_all_combinations() {
    let points = Experiment::parse(TEXT).unwrap().points().unwrap();
    let at: Vec<_> =
        points.iter().map(|p| (p.at["policy"].as_str(), p.at["paths"].as_str())).collect();
    let expected = [("single", "4"), ("single", "128"), ("oblivious", "4"), ("oblivious", "128")];
    assert_eq!(at, expected);
    assert_eq!(points[3].scenario["transport"]["paths"].as_integer(), Some(128));
}

#[test]
fn an_axis_reaches_into_lists() {
    let at = |key: &str| {
        let mut experiment = Experiment::parse(TEXT).unwrap();
        experiment.axes[1].key = key.into();
        experiment.points().map(|points| points[3].scenario.clone())
    };
    let scenario = at("fault.0.probability").unwrap();
    assert_eq!(scenario["fault"][0]["probability"].as_integer(), Some(128));
    let error = at("fault.1.probability").unwrap_err().to_string();
    assert_eq!(error, r#"axis "paths": key "fault.1.probability" leads nowhere below "fault""#);
    assert!(at("transport.policy.paths").is_err());
}

#[test]
fn an_axis_of_balancers_changes_all_the_keys_that_a_variant_names() {
    let variant = |text: &str| {
        let mut experiment = Experiment::parse(TEXT).unwrap();
        let two = "[[variant]]\nname = \"two\"\ntransport = { paths = 2, mtu = 1000 }\n\
                   forwarding = { kind = \"conga\" }";
        experiment.scenario.extend(toml::from_str::<Table>(two).unwrap());
        experiment.axes[0].key = "variant".into();
        experiment.axes[0].values[1] = text.into();
        experiment.axes.truncate(1);
        experiment.points().map(|points| (points[1].at["policy"].clone(), points[1].clone()))
    };
    let (label, two) = variant("two").unwrap();
    assert_eq!(label, "two");
    assert_eq!(two.scenario["transport"]["paths"].as_integer(), Some(2));
    assert_eq!(two.scenario["forwarding"]["kind"].as_str(), Some("conga"));
    assert!(!two.scenario.contains_key("variant"), "a run needs no variants");
    let (_, policy) = variant("two+oblivious").unwrap();
    assert_eq!(policy.scenario["transport"]["policy"].as_str(), Some("oblivious"));
    let error = variant("twp").unwrap_err().to_string();
    assert!(error.starts_with("axis \"policy\": no balancer \"twp\", did you mean"), "{error}");
    let mut experiment = Experiment::parse(TEXT).unwrap();
    experiment.scenario.insert("variant".into(), 3.into());
    let error = experiment.points().unwrap_err().to_string();
    assert!(error.starts_with("[[scenario.variant]]: invalid type"), "{error}");
}

fn rows(experiment: &Experiment) -> Vec<Row> {
    let points = experiment.points().unwrap();
    let values = [(9.0, 9.0), (9.0, 9.0), (4.0, 8.0), (1.0, 3.0)];
    let row = |(point, (a, b))| experiment.measure(point, &[report(a), report(b)]).unwrap();
    points.iter().zip(values).map(row).collect()
}

#[test]
fn measures_are_means_over_the_seeds_and_claims_compare_them() {
    let mut experiment = Experiment::parse(TEXT).unwrap();
    let findings = experiment.evaluate(rows(&experiment)).unwrap();
    assert_eq!(findings.rows[2].measured["queue"], 3.0);
    assert!(findings.claims[0].holds);
    assert_eq!((findings.claims[0].left, findings.claims[0].right), (1.0, 3.0));
    // Half the difference of 4 and 8: a deviation of the root of 2, over the root of 2, times 12.706.
    assert!((findings.rows[2].spread["queue"] - 12.706).abs() < 1e-9, "{findings:?}");
    experiment.measures[0].of_seeds = Reduce::Max;
    assert!(rows(&experiment)[2].spread.is_empty(), "only means have one");
    assert_eq!(rows(&experiment)[2].measured["queue"], 4.0);
}

#[test]
fn a_measure_may_be_a_ratio_to_another_row_seed_by_seed() {
    let mut experiment = Experiment::parse(TEXT).unwrap();
    experiment.measures[0].over = BTreeMap::from([("paths".into(), "4".into())]);
    experiment.measures[0].scale = 100.0;
    let findings = experiment.evaluate(rows(&experiment)).unwrap();
    let shares: Vec<_> = findings.rows.iter().map(|row| row.measured["queue"]).collect();
    // The last row's seeds are 1 of 4 and 3 of 8.
    assert_eq!(shares, [100.0, 100.0, 100.0, 31.25]);
    // Half of the difference 12.5, times 12.706.
    assert!((findings.rows[3].spread["queue"] - 6.25 * 12.706).abs() < 1e-9, "{findings:?}");
    let of_seeds = |reduce| {
        let mut experiment = experiment.clone();
        experiment.measures[0].of_seeds = reduce;
        experiment.evaluate(rows(&experiment)).unwrap().rows[3].clone()
    };
    assert_eq!(of_seeds(Reduce::Min).measured["queue"], 25.0);
    assert_eq!(of_seeds(Reduce::Max).measured["queue"], 37.5);
    assert!(of_seeds(Reduce::Max).spread.is_empty(), "only means have one");
    experiment.measures[0].over = BTreeMap::from([("paths".into(), "5".into())]);
    let error = experiment.evaluate(rows(&experiment)).unwrap_err().to_string();
    assert!(error.contains("paths = 5"), "{error}");
}

#[test]
fn a_claim_about_several_rows_needs_a_reduction() {
    let evaluate = |left: &str| {
        let text = TEXT.replace(
            r#"left = { at = { policy = "oblivious", paths = "128" }, measure = "queue" }"#,
            &format!("left = {{ measure = \"queue\", {left} }}"),
        );
        let experiment = Experiment::parse(&text).unwrap();
        experiment.evaluate(rows(&experiment)).map(|findings| findings.claims[0].left)
    };
    assert_eq!(evaluate(r#"at = { paths = "128" }, of = "max""#).unwrap(), 4.5);
    assert_eq!(
        evaluate(r#"at = { policy = ["single", "oblivious"] }, of = "mean""#).unwrap(),
        3.25
    );
    let error = evaluate(r#"at = { paths = "128" }"#).unwrap_err().to_string();
    assert!(error.contains("not one number with these values but 2"), "{error}");
    let error = evaluate(r#"at = { policy = ["single", "dwrr"] }, of = "min""#).unwrap_err();
    assert!(error.to_string().contains("policy = dwrr"), "{error}");
}

#[test]
fn a_claim_may_be_about_several_measures() {
    let two = r#"measures = [{ name = "twice", value = "queues.0.mean" }, { name"#;
    let text = TEXT.replace("measures = [{ name", two).replace(
        r#"paths = "128" }, measure = "queue""#,
        r#"paths = "128" }, measure = ["queue", "twice"], of = "max""#,
    );
    let experiment = Experiment::parse(&text).unwrap();
    assert_eq!(experiment.evaluate(rows(&experiment)).unwrap().claims[0].left, 2.0);
}

#[test]
fn a_claim_may_divide_by_reference_rows() {
    let evaluate = |over: &str| {
        let text = TEXT.replacen("measure = \"queue\"", &format!("measure = \"queue\", {over}"), 1);
        let experiment = Experiment::parse(&text).unwrap();
        experiment.evaluate(rows(&experiment)).map(|findings| findings.claims[0].left)
    };
    // 1 and 3 over 4 and 8, and over 9 and 9.
    assert_eq!(evaluate("over = { paths = \"4\" }").unwrap(), 4.0 / 12.0);
    assert_eq!(evaluate("over = { policy = \"single\" }").unwrap(), 4.0 / 18.0);
    let error = evaluate("over = { paths = \"5\" }").unwrap_err().to_string();
    assert!(error.contains("there is not a run with paths = 5, policy = oblivious"), "{error}");
}

#[test]
fn a_missing_measure_or_run_is_named() {
    let experiment = Experiment::parse(TEXT).unwrap();
    let point = &experiment.points().unwrap()[0];
    let error = experiment.measure(point, &[serde_json::json!({})]).unwrap_err();
    let text = r#"measure "queue": the report has no number at "queues.0.mean""#;
    assert_eq!(error.to_string(), text);
    let error = experiment.evaluate(Vec::new()).unwrap_err().to_string();
    assert!(error.contains("there is not a run with paths = 128"), "{error}");
    let error = Experiment::parse("title = 3").unwrap_err().to_string();
    assert!(error.contains("line 1"), "{error}");
}

// The experiments of this repository are checked without running them to their ends.

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let entries = std::fs::read_dir(folder).expect("the repository has experiments");
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    files
}

fn read(file: &Path) -> Experiment {
    let text = std::fs::read_to_string(file).unwrap();
    Experiment::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn is_simulated(file: &Path) -> bool {
    matches!(read(file).source(), Source::Simulated)
}

/// Returns the report of a scenario's first 20 us.
fn short_report(scenario: &Scenario) -> Value {
    let mut scenario = scenario.clone();
    scenario.run.limit = Duration::from_micros(20);
    scenario.measure.from = Duration::from_micros(5);
    serde_json::to_value(crate::run(&scenario, Seed(1)).unwrap()).unwrap()
}

#[test]
fn every_simulated_experiment_can_be_run_measured_and_evaluated() {
    let files: Vec<PathBuf> = files().into_iter().filter(|file| is_simulated(file)).collect();
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        let name = file.display();
        let experiment = read(&file);
        let points = experiment.points().unwrap_or_else(|error| panic!("{name}: {error}"));
        let folder = file.parent().unwrap();
        let scenario = |point: &Point| {
            Scenario::from_table(point.scenario.clone(), folder)
                .unwrap_or_else(|error| panic!("{name}, {:?}: {error}", point.at))
        };
        for point in &points {
            crate::run::build(&scenario(point), Seed(1))
                .unwrap_or_else(|error| panic!("{name}, {:?}: {error}", point.at));
        }
        // Every point has the same keys in its report.
        let report = short_report(&scenario(&points[0]));
        let rows =
            points.iter().map(|point| experiment.measure(point, std::slice::from_ref(&report)));
        let rows = rows.collect::<Result<Vec<_>, _>>();
        let rows = rows.unwrap_or_else(|error| panic!("{name}: {error}"));
        let findings = experiment.evaluate(rows).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!findings.claims.is_empty(), "{name} claims nothing");
    }
}

#[test]
fn every_experiment_states_the_papers_result_and_the_difference() {
    for file in files() {
        let (name, experiment) = (file.display(), read(&file));
        let reason = match experiment.source() {
            Source::Missing(missing) => &missing.stands_in,
            _ => &experiment.differs,
        };
        let is_topic = file.file_stem().unwrap().to_string_lossy().starts_with("perf-");
        let quoted = (!is_topic).then_some(&experiment.paper);
        for text in [&experiment.title, &experiment.source, reason].into_iter().chain(quoted) {
            assert!(text.trim().len() > 20, "{name}: {text:?}");
        }
    }
}

#[test]
fn too_many_points_are_refused_before_they_are_created() {
    let mut experiment = Experiment::parse(TEXT).unwrap();
    let mut axis = experiment.axes[0].clone();
    axis.values = vec![1.into(); 1_000];
    experiment.axes = vec![axis; 7];
    // An empty axis leaves no point, but only at the end.
    experiment.axes[6].values.clear();
    let error = experiment.points().unwrap_err().to_string();
    let text = "the axes have 1000000000000000000 combinations, expected at most 100000";
    assert_eq!(error, text);
}

#[test]
fn a_mistake_in_the_file_is_named_with_its_line_and_the_nearest_key() {
    let error = Experiment::parse(&TEXT.replacen("measures", "mesures", 1)).unwrap_err();
    let want = "line 13: unknown key \"mesures\", did you mean \"measures\"?";
    assert!(error.to_string().starts_with(want), "{error}");
}
