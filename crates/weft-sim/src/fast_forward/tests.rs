use std::path::Path;

use weft_units::Seed;

use super::{FastForwardReport, Refusal};
use crate::report::{Comparison, Report};
use crate::scenario::Scenario;

/// Four servers of four GPUs, each with a NIC of its own, in two blocks.
const FABRIC: &str = r#"
    topology = { kind = "rail", blocks = 2, servers_per_block = 2, rails = 4, spines = 4 }
"#;

/// A job whose tensor parallelism is inside a server.
const DENSE: &str = r#"
    [[workload]]
    kind = "parallel-training"
    server = { hosts = 4, gpus_per_host = 1 }
    scale = 1.0
    tensor = 4
    pipeline = 1
    data = 4
    load = { compute = "6ms", tensor = "32MB", gradients = "192MB", layers = 24, micro_batches = 1 }
"#;

/// A job whose GPUs send tokens to experts of all servers. The order of computation and all-to-all settles in the first
/// micro-batches.
const EXPERTS: &str = r#"
    [[workload]]
    kind = "parallel-training"
    server = { hosts = 4, gpus_per_host = 1 }
    scale = 1.0
    tensor = 4
    pipeline = 1
    data = 4
    expert = 4
    load = { compute = "10ms", tensor = "100MB", tokens = "100MB", gradients = "8MB", layers = 4, micro_batches = 40 }
"#;

/// A job of two stages.
const STAGES: &str = r#"
    [[workload]]
    kind = "parallel-training"
    server = { hosts = 4, gpus_per_host = 1 }
    scale = 1.0
    tensor = 4
    pipeline = 2
    data = 2
    load = { compute = "8ms", pipeline = "40MB", gradients = "8MB", layers = 4, micro_batches = 24 }
"#;

fn run(text: &str, threshold: Option<f64>) -> Report {
    let mut scenario = Scenario::parse(text, Path::new("")).unwrap();
    scenario.run.fast_forward = threshold;
    crate::run(&scenario, Seed(1)).unwrap()
}

fn summary(report: &Report) -> &FastForwardReport {
    report.fast_forward.as_ref().expect("fast-forward is on")
}

/// Returns the exact and the fast report of a workload on the small fabric. The fast run ends within `error` of the exact
/// one, for which it took at most `share` of the packet-hops.
fn compared(workload: &str, error: f64, share: f64) -> (Report, Report) {
    compared_runs(&format!("{FABRIC}{workload}"), error, share)
}

/// Like [`compared`], of a whole scenario.
fn compared_runs(text: &str, error: f64, share: f64) -> (Report, Report) {
    let (exact, fast) = (run(text, None), run(text, Some(0.05)));
    let found = Comparison::new(&exact, &fast);
    println!("{found:?}: {} us, {:#?}", exact.simulated_us, fast.fast_forward);
    assert!(exact.finished && fast.finished);
    assert!(found.end.abs() < error, "{found:?}");
    assert!(1.0 / found.packet_hops < share, "{found:?}");
    (exact, fast)
}

#[test]
fn a_dense_model_takes_the_same_time_within_a_hundredth() {
    let (exact, fast) = compared(DENSE, 0.01, 0.4);
    // What was not sent is what the exact run sent more.
    assert_eq!(received_bytes(&exact), received_bytes(&fast) + summary(&fast).skipped_bytes);
    let shares = |report: &Report| report.workloads[0].iterations[0].shares.unwrap();
    let (exact, fast) = (shares(&exact), shares(&fast));
    for (exact, fast) in [(exact.computing, fast.computing), (exact.data, fast.data)] {
        assert!((exact - fast).abs() < 0.02, "{exact} {fast}");
    }
}

/// Returns the payload that hosts received, bytes.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of bytes")]
fn received_bytes(report: &Report) -> u64 {
    let skipped = report.fast_forward.as_ref().map_or(0.0, |summary| summary.skipped_us);
    let bits = report.goodput.total_gbps * (report.simulated_us - skipped) * 1e3;
    (bits / 8.0).round() as u64
}

#[test]
fn experts_take_the_same_time_within_a_hundredth() {
    let (_, fast) = compared(EXPERTS, 0.01, 0.6);
    // An all-reduce in a server waits for the slowest of four exchanges of tokens.
    assert_eq!(summary(&fast).equal_parts, 0);
    assert!(summary(&fast).refused.contains_key(Refusal::PartsWait.text()));
}

#[test]
fn the_scenario_with_experts_is_right_within_a_hundredth_at_an_eighth_of_its_size() {
    let text = include_str!("../../../../scenarios/fast-forward-moe.toml");
    let text = text.replace("scale = 1.0", "scale = 8.0");
    let (exact, fast) = (run(&text, None), run(&text, Some(0.05)));
    let found = Comparison::new(&exact, &fast);
    assert!(found.end.abs() < 0.01 && found.packet_hops > 3.0, "{found:?}");
}

#[test]
fn pairs_of_rails_are_simulated_once() {
    let text = format!("{FABRIC}{DENSE}");
    let (exact, fast) = (run(&text, None), run(&text, Some(1e-12)));
    assert_eq!(summary(&fast).equal_parts, 2);
    let (all, skipped) = (received_bytes(&exact), summary(&fast).skipped_bytes);
    assert_eq!(all, received_bytes(&fast) + skipped);
    assert!(2 * skipped >= all, "{skipped} of {all} bytes");
    let end = Comparison::new(&exact, &fast).end;
    assert!(end.abs() < 0.005, "{end}");
}

#[test]
fn rails_that_share_leaves_are_all_simulated() {
    let two =
        "topology = { kind = \"rail\", blocks = 2, servers_per_block = 2, rails = 2, spines = 4 }";
    let job = DENSE.replace("hosts = 4", "hosts = 2").replace("tensor = 4", "tensor = 2");
    let fast = run(&format!("{two}{}", job.replace("scale = 1.0", "scale = 20.0")), Some(0.05));
    assert_eq!(summary(&fast).equal_parts, 0);
    assert!(summary(&fast).refused.contains_key(Refusal::NoEqualParts.text()));
}

/// Returns the job of `fast-forward-llama-405b` on 64 racks of `gpus` GPUs: messages of the same size, a third of its layers
/// divided by the racks that are left out, in three buckets.
fn racks(gpus: u32) -> String {
    let text = include_str!("../../../../scenarios/fast-forward-llama-405b.toml");
    let changes = [
        ("blocks = 32", "blocks = 4".to_string()),
        ("servers_per_block = 64", "servers_per_block = 16".to_string()),
        ("rails = 64", format!("rails = {gpus}")),
        ("hosts = 64", format!("hosts = {gpus}")),
        ("tensor = 64", format!("tensor = {gpus}")),
        ("data = 2048", "data = 64".to_string()),
        ("scale = 1.0", "scale = 224.0".to_string()),
        ("layers = 21", "layers = 3".to_string()),
    ];
    changes.iter().fold(text.to_string(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

#[test]
fn long_rings_of_short_messages_take_the_same_time_within_a_hundredth() {
    // Two rails are one part, so that the exact run has no other part that is slower.
    compared_runs(&racks(2), 0.01, 0.6);
}

#[test]
fn rings_whose_rounds_are_not_steady_are_simulated_whole() {
    let (exact, fast) = (run(&racks(2), None), run(&racks(2), Some(1e-4)));
    assert_eq!(summary(&fast).skipped_us, 0.0);
    assert!(summary(&fast).refused[Refusal::NotSteady.text()] > 0, "{:?}", summary(&fast));
    assert_eq!(received_bytes(&exact), received_bytes(&fast));
    assert!(Comparison::new(&exact, &fast).end.abs() < 0.001);
}

#[test]
fn stages_take_the_same_time_within_a_hundredth() {
    compared(STAGES, 0.01, 0.6);
}

#[test]
fn iterations_that_repeat_are_skipped() {
    let repeated = DENSE.replace("scale = 1.0", "scale = 10.0\n    iterations = 12");
    let (_, fast) = compared(&repeated, 0.01, 0.4);
    assert!(summary(&fast).skips["iteration"].skipped_us > 0.5 * fast.simulated_us);
}

#[test]
fn a_fast_run_gives_the_same_bytes_for_a_seed() {
    let text = format!("{FABRIC}{}", DENSE.replace("scale = 1.0", "scale = 10.0"));
    assert_eq!(run(&text, Some(0.05)).to_json(), run(&text, Some(0.05)).to_json());
}

#[test]
fn traffic_without_units_is_refused_with_the_reason() {
    let background = "[[workload]]\nkind = \"background\"\n";
    let text = format!("{FABRIC}{}{background}", DENSE.replace("scale = 1.0", "scale = 10.0"));
    let (exact, fast) = (run(&text, None), run(&text, Some(0.05)));
    assert_eq!(summary(&fast).skipped_us, 0.0);
    assert!(summary(&fast).refused.contains_key(Refusal::NoUnits.text()), "{:?}", summary(&fast));
    let end = Comparison::new(&exact, &fast).end;
    assert!(end.abs() < 0.01, "{end}");
}

#[test]
fn a_fault_happens_at_its_time_and_the_limit_ends_the_run() {
    let fault = "[[fault]]\nkind = \"link-down\"\nlinks = \"busiest-uplink\"\nat = \"5ms\"\nduration = \"100us\"\n";
    let (exact, fast) = compared(&format!("{DENSE}{fault}"), 0.02, 0.6);
    assert!(summary(&fast).refused.contains_key(Refusal::NotAlone.text()));
    assert!(exact.network.lost["link_down"] > 0, "the exact run loses packets");
    assert!(fast.network.lost["link_down"] > 0, "the fast run loses packets at the same time");
    let text = format!("{FABRIC}run = {{ limit = \"7ms\" }}\n{DENSE}");
    let cut = run(&text, Some(0.05));
    assert!(!cut.finished && summary(&cut).skipped_us > 0.0);
    assert!((cut.simulated_us - 7_000.0).abs() < 1e-6, "{}", cut.simulated_us);
}

#[test]
fn a_threshold_out_of_range_is_refused() {
    for threshold in ["0.0", "1.0", "-0.1", "nan"] {
        let text = format!("{FABRIC}run = {{ fast_forward = {threshold} }}\n");
        let error = Scenario::parse(&text, Path::new("")).unwrap_err().to_string();
        assert!(error.contains("fast_forward is"), "{error}");
    }
}
