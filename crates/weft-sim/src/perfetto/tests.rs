use std::path::Path;

use weft_units::Seed;

use super::*;
use crate::{Report, Scenario, run, run_watched};

/// The watchers of a trace.
struct Both<'a>(&'a mut Timeline, &'a mut Trace<Vec<u8>>);

impl Watcher for Both<'_> {
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

fn trace(text: &str, max_bytes: u64) -> (Report, Vec<u8>, Written) {
    let scenario = Scenario::parse(text, Path::new("")).unwrap();
    let topology = scenario.build_topology().unwrap();
    let mut timeline = Timeline::new(SimSpan::from_picos(1_000_000));
    let mut trace = Trace::new(Vec::new(), max_bytes, vec!["incast".into()]);
    let mut both = Both(&mut timeline, &mut trace);
    let report = run_watched(&scenario, Seed(1), &mut None, &mut both).unwrap();
    assert_eq!(report.to_json(), run(&scenario, Seed(1)).unwrap().to_json(), "it only watches");
    let links = timeline.busiest(&topology, 4);
    let (bytes, written) = trace.finish(&timeline, &topology, &links).unwrap();
    assert_eq!(written.bytes, bytes.len() as u64);
    (report, bytes, written)
}

const LOSSLESS: &str = r#"
    topology = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 4 }
    port = { kind = "priority" }
    pfc = { enabled = true }
    buffer = { size = "400KB" }
    transport = { congestion = "fixed-window" }
    [[workload]]
    kind = "incast"
    size = "300KB"
"#;

#[test]
fn a_trace_has_every_message_and_is_the_same_bytes_again() {
    let (report, bytes, written) = trace(LOSSLESS, 1 << 20);
    assert_eq!((written.messages, written.left_out), (7, 0));
    assert!(report.pfc.as_ref().unwrap().paused_us > 0.0, "{report:?}");
    assert_eq!(bytes, trace(LOSSLESS, 1 << 20).1);
    // An interned name is there once, however often it is used.
    let count = |text: &str| bytes.windows(text.len()).filter(|it| *it == text.as_bytes()).count();
    assert_eq!((count("acknowledged_ps"), count("incast"), count("duration_ps")), (1, 1, 1));
}

#[test]
fn a_full_trace_leaves_messages_out_and_says_how_many() {
    let (_, _, written) = trace(LOSSLESS, 300);
    assert!(written.messages < 7 && written.left_out > 7 - written.messages, "{written:?}");
}

#[test]
fn an_error_of_the_writer_is_returned() {
    #[derive(Debug)]
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let scenario = Scenario::parse(LOSSLESS, Path::new("")).unwrap();
    let timeline = Timeline::new(SimSpan::from_picos(1_000_000));
    let trace = Trace::new(Full, 1 << 20, vec![]);
    let error = trace.finish(&timeline, &scenario.build_topology().unwrap(), &[]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}
