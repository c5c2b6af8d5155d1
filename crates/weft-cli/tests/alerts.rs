//! Prometheus' alert rules, Grafana's dashboard and the runbook: Prometheus' own checks, and that each names only what
//! exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use weft_events::EVENTS;
use weft_testkit::can_run;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

const RULES: &str = "dist/prometheus/weft-alerts.yml";
const TESTS: &str = "dist/prometheus/weft-alerts.test.yml";
const DASHBOARD: &str = "dist/grafana/weft.json";

/// Returns the values of a key of the rules, a line each, without quotes.
fn values(key: &str) -> Vec<String> {
    let rules = read(RULES);
    let lines = rules.lines().filter_map(|line| {
        line.trim().trim_start_matches("- ").strip_prefix(key)?.strip_prefix(": ")
    });
    lines.map(|value| value.trim_matches(['\'', '"']).replace("''", "'")).collect()
}

/// Returns the expressions of the dashboard's panels.
fn dashboard_expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

/// Returns the metrics of Weft in an expression.
fn metrics(expression: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = expression.split(move |c| !is_part(c));
    words.filter(|word| word.starts_with("weft_"))
}

#[test]
fn rules_and_dashboard_name_only_metrics_that_are_served() {
    let page = read("docs/reference/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `weft_")?.split_once('`'));
    let served: BTreeSet<String> = rows.map(|(name, _)| format!("weft_{name}")).collect();
    let is_served = |name: &str| {
        served.contains(name) || name.strip_suffix("_bucket").is_some_and(|it| served.contains(it))
    };
    let (rules, panels) = (values("expr"), dashboard_expressions());
    assert!(rules.len() >= 15 && panels.len() >= 25, "{} {}", rules.len(), panels.len());
    for expression in rules.iter().chain(&panels) {
        for metric in metrics(expression) {
            assert!(
                is_served(metric),
                "{metric} is not in docs/reference/metrics.md: {expression}"
            );
        }
    }
}

fn promtool(words: &[&str], file: &Path) -> Output {
    let mut command = Command::new("promtool");
    command.args(words).arg(file.file_name().unwrap()).current_dir(file.parent().unwrap());
    command.output().unwrap()
}

fn assert_success(output: &Output) {
    let text = [&output.stdout[..], &output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
}

#[test]
fn prometheus_accepts_the_rules_and_each_fires_on_its_fault_alone() {
    if !can_run("Prometheus' rules", "promtool", &["--version"], "prometheus") {
        return;
    }
    assert_success(&promtool(&["check", "rules"], &root().join(RULES)));
    assert_success(&promtool(&["test", "rules"], &root().join(TESTS)));
    let tests = read(TESTS);
    for alert in values("alert") {
        let fires = format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"");
        assert!(tests.contains(&fires), "{TESTS} has no test in which {alert} fires");
    }
}

#[test]
fn prometheus_accepts_the_dashboards_expressions() {
    if !can_run("Grafana's dashboard", "promtool", &["--version"], "prometheus") {
        return;
    }
    let mut rules = String::from("groups:\n  - name: dashboard\n    rules:\n");
    for (number, expression) in dashboard_expressions().iter().enumerate() {
        let expression = expression.replace("$__rate_interval", "1m").replace('\'', "''");
        rules += &format!("      - {{ record: 'panel:{number}', expr: '{expression}' }}\n");
    }
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dashboard.yml");
    fs::write(&file, rules).unwrap();
    assert_success(&promtool(&["check", "rules"], &file));
}

#[test]
fn the_dashboards_panels_have_a_title_a_unit_and_a_place_of_their_own() {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let (mut ids, mut places) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        assert!(!panel["title"].as_str().unwrap().is_empty(), "{panel}");
        assert!(panel["type"] == "row" || panel["fieldConfig"]["defaults"]["unit"].is_string());
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        for (x, y) in (at("x")..at("x") + at("w")).flat_map(|x| {
            let rows = at("y")..at("y") + at("h");
            rows.map(move |y| (x, y))
        }) {
            assert!(x < 24 && places.insert((x, y)), "{} overlaps another", panel["title"]);
        }
    }
}

#[test]
fn every_alert_has_a_page_in_the_runbook_and_every_page_an_alert_or_an_event() {
    let (alerts, runbooks) = (values("alert"), values("runbook"));
    assert_eq!(alerts.len(), runbooks.len());
    let index = read("docs/runbook/index.md");
    for (alert, runbook) in alerts.iter().zip(&runbooks) {
        let page = runbook.strip_prefix("/usr/share/doc/weft/runbook/").expect("an installed file");
        let text = read(&format!("docs/runbook/{page}"));
        assert!(text.starts_with(&format!("# {alert}\n")), "{page} is not {alert}'s");
        for part in ["**Meaning.**", "**Effect.**", "**What to do.**\n\n1. "] {
            assert!(text.contains(part), "{page} lacks {part}");
        }
        assert!(index.contains(&format!("[{alert}]({page})")), "the index lacks {alert}");
    }
    for entry in fs::read_dir(root().join("docs/runbook")).unwrap() {
        let page = entry.unwrap().file_name().into_string().unwrap();
        let of_alert = runbooks.iter().any(|it| it.ends_with(&format!("/{page}")));
        let of_event = EVENTS.iter().any(|row| format!("{}.md", row.page) == page);
        assert!(of_alert || of_event || page == "index.md", "{page} is of no alert or event");
        assert!(
            page == "index.md" || index.contains(&format!("]({page})")),
            "the index lacks {page}"
        );
    }
}

/// Prometheus' configuration on the page about alerts: that it is one, and that it scrapes only addresses at which the
/// page's drop-ins have daemons listen.
#[test]
fn the_example_of_a_prometheus_scrapes_what_its_drop_ins_serve() {
    let page = read("docs/supervision.md");
    let example = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let listens = |job: &str| {
        let start = format!("# systemctl edit {job}\n[Service]\n");
        let drop_ins = page.split(&start).skip(1).map(|it| it.split("```").next().unwrap());
        drop_ins.filter(|it| it.contains("ExecStart=\n")).collect::<String>()
    };
    let jobs: Vec<&str> = example.split("job_name: ").skip(1).collect();
    assert!(jobs.len() >= 3, "{example}");
    for job in jobs {
        let (name, rest) = job.split_once('\n').unwrap();
        let first = rest.split('"').nth(1).unwrap();
        let drop_in = listens(name);
        assert!(drop_in.contains(&format!(" {first} ")), "{name} does not listen at {first}");
        let both = (drop_in.contains("--token-file"), rest.contains("credentials_file"));
        assert_eq!(both, (true, true), "{name}");
    }
    if !can_run("Prometheus' configuration", "promtool", &["--version"], "prometheus") {
        return;
    }
    let rules = root().join(RULES).canonicalize().unwrap();
    let config =
        example.replace("/usr/share/weft/prometheus/weft-alerts.yml", rules.to_str().unwrap());
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prometheus.yml");
    fs::write(&file, config).unwrap();
    assert_success(&promtool(&["check", "config", "--syntax-only"], &file));
}
