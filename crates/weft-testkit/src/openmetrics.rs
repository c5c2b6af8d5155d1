//! A parser of OpenMetrics: that of Prometheus' Python client.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

const SCRIPT: &str = "import sys, json\n\
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse\n\
    samples = [s for family in parse(sys.stdin.read()) for s in family.samples]\n\
    print(json.dumps([[s.name, s.labels, float(s.value)] for s in samples]))";

/// Returns the name, labels and value of each sample of an OpenMetrics text.
///
/// # Panics
/// Panics if the parser rejects the text or is not installed (Debian's python3-prometheus-client).
pub fn samples(text: &str) -> Vec<(String, Value, f64)> {
    let mut python = Command::new("/usr/bin/python3");
    let piped = python.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.spawn().expect("Debian's Python");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(text.as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "the parser rejects the text:\n{text}");
    serde_json::from_slice(&output.stdout).expect("what the script prints")
}
