use std::path::Path;

use weft_units::Seed;

use crate::report::Report;
use crate::scenario::Scenario;

/// Runs the file `golden` of `tests/golden` on a leaf-spine network of 8 hosts with ports of 100 Gb/s.
fn run(golden: &str, settings: &str) -> Result<Report, String> {
    let text = format!(
        "topology = {{ kind = \"leaf-spine\", leaves = 2, spines = 4, hosts_per_leaf = 4 }}\n\
         measure = {{ flows = true }}\n\
         [[workload]]\nkind = \"graph\"\nfile = \"{golden}\"\n{settings}"
    );
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let scenario = Scenario::parse(&text, &folder).map_err(|error| error.to_string())?;
    crate::run(&scenario, Seed(1)).map_err(|error| error.to_string())
}

/// Returns the start, delivery and acknowledgement of the flow of this many bytes, microseconds.
fn flow(report: &Report, bytes: u32) -> [f64; 3] {
    let found: Vec<_> = report.flows.iter().filter(|flow| flow.bytes == bytes).collect();
    assert_eq!(found.len(), 1, "{bytes}");
    [found[0].start_us, found[0].delivered_us, found[0].acknowledged_us]
}

#[test]
fn flows_of_htsim_start_when_their_triggers_fire() {
    let report = run("htsim/triggers.cm", "").unwrap();
    assert!(report.finished && report.flows.len() == 6);
    let sizes = [100_000, 200_000, 300_000, 400_000, 500_000, 600];
    let [one, two, three, four, five, six] = sizes.map(|bytes| flow(&report, bytes));
    assert_eq!((one[0], six[0]), (0.0, 40.0));
    // At the host that learned of it a flow starts at once, at another a lookahead or two later, each 1 us.
    assert_eq!((two[0], three[0]), (one[2], one[2]));
    let barrier = two[1].max(three[2]);
    assert!((0.0..=2.1).contains(&(four[0] - barrier)), "{four:?} after {barrier}");
    assert!((0.0..=2.1).contains(&(five[0] - four[2])), "{five:?} after {four:?}");
    let report = run("htsim/triggers.cm", "start_unit = \"ps\"").unwrap();
    assert!(flow(&report, 600)[0] < 0.001);
}

#[test]
fn operations_of_goal_wait_for_what_they_require() {
    let report = run("goal/exchange.goal", "").unwrap();
    assert!(report.finished);
    let [there, back, any] = [4096, 8, 16].map(|bytes| flow(&report, bytes));
    // A calculation of 1 us, and on the other side one of 0.5 us.
    assert_eq!(there[0], 1.0);
    assert!((back[0] - there[1] - 0.5).abs() < 1e-6, "{back:?} after {there:?}");
    assert_eq!(any[0], 0.0);
    let binary = run("goal_binary/exchange.bin", "").unwrap();
    assert_eq!(flow(&binary, 8), back);
}

#[test]
fn a_trace_of_chakra_runs_with_its_collectives_in_order() {
    let report = run("chakra/pair.0.et", "").unwrap();
    let iterations = &report.workloads[0].iterations;
    assert!(report.finished && iterations.len() == 2, "{iterations:?}");
    // A computation of 5 us comes first.
    assert_eq!(iterations[0].start_us, 5.0);
    assert!(iterations[1].start_us >= iterations[0].start_us + iterations[0].time_us - 2.0);
    let bits = 8.0 * 4096.0;
    assert!((iterations[0].bus_gbps - bits / iterations[0].time_us / 1e3).abs() < 1e-9);
    assert!(flow(&report, 8000)[0] > iterations[1].start_us);
}

#[test]
fn layers_of_simai_run_forward_and_back() {
    let report = run("simai/two_layers.txt", "").unwrap();
    let iterations = &report.workloads[0].iterations;
    // Four groups of tensor ranks twice, four of experts twice, two of replicas once, four of experts' replicas.
    assert_eq!((report.finished, iterations.len()), (true, 4 * 4 + 2 + 4));
    let bound = 5.0 + 4.0 + 3.0 + 3.0 + 2.0;
    assert!(report.simulated_us > bound, "{}", report.simulated_us);
    let micro = run("simai/micro.txt", "").unwrap();
    let iteration = micro.workloads[0].iterations[0];
    // 1 MiB among four ranks: 1.5 MiB from each at 100 Gb/s, 98.1 of it payload.
    assert!((128.0..150.0).contains(&iteration.time_us), "{iteration:?}");
}

#[test]
fn ranks_of_a_server_do_not_use_the_network() {
    let server =
        "server = { hosts = 4, gpus_per_host = 1, rate = \"1600Gbps\", latency = \"1us\" }";
    let alone = run("simai/micro.txt", server).unwrap();
    assert_eq!(alone.network.injected, 0);
    // Six steps of 256 KiB at 1.6 Tb/s and 1 us.
    let time = alone.workloads[0].iterations[0].time_us;
    assert!((time - 6.0 * (262_144.0 * 8.0 / 1.6e6 + 1.0)).abs() < 0.01, "{time}");
    let shared =
        "server = { hosts = 1, gpus_per_host = 4, rate = \"1600Gbps\", latency = \"1us\" }";
    assert_eq!(run("simai/micro.txt", shared).unwrap().network.injected, 0);
}

#[test]
fn algorithms_and_thresholds_change_the_messages() {
    let ring = run("simai/micro.txt", "").unwrap();
    let tree = run("simai/micro.txt", "all_reduce = \"double-tree\"").unwrap();
    let small = run("simai/micro.txt", "small = \"2MB\"").unwrap();
    let bytes = |report: &Report| report.goodput.total_gbps * report.simulated_us / 8e-3;
    let mib = f64::from(1 << 20);
    assert!((bytes(&ring) / mib - 6.0).abs() < 0.01, "{}", bytes(&ring) / mib);
    assert!((bytes(&tree) / mib - 6.0).abs() < 0.01, "{}", bytes(&tree) / mib);
    // Recursive doubling sends the whole buffer twice.
    assert!((bytes(&small) / mib - 8.0).abs() < 0.01, "{}", bytes(&small) / mib);
    assert!(tree.simulated_us != ring.simulated_us);
}

#[test]
fn invalid_settings_and_files_are_refused() {
    for (golden, settings, want) in [
        ("none.et", "", "workload 1 (graph): "),
        ("sizes/shares.txt", "", "workload 1 (graph): "),
        ("flows/list.flows", "", "workload 1 (graph): "),
        ("chakra/pair.0.et", "hosts = \"3\"", "workload 1 (graph): 1 hosts are too few"),
        ("chakra/pair.0.et", "format = \"goal\"", "workload 1 (graph): "),
        (
            "chakra/pair.0.et",
            "roofline = { tflops = 0.0, memory_gbps = 1.0 }",
            "line 6: workload 1 (graph): tflops is 0, expected a number above zero",
        ),
    ] {
        let error = run(golden, settings).unwrap_err();
        assert!(error.starts_with(want), "{golden}: {error}");
    }
}
