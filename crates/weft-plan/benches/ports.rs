//! Benchmark of source-port planning for whole clusters: time, memory, and distance to the bound.
//!
//! `cargo bench -p weft-plan --bench ports -- [rows by number …]`
//!
//! Every GPU has a NIC and sends to two random peers over four queue pairs each, as in training jobs on
//! randomly placed servers; every peer has two senders. The time is the process's CPU time on one core, from
//! the flows to their ports. The time for routes, which a controller has anyway, is reported separately. Each
//! row runs in its own process, so that its peak memory is measured alone.

#[expect(unreachable_pub, reason = "the simulator shows it to its benchmarks")]
#[path = "../../weft-sim/src/bench.rs"]
mod process;

use std::process::{Command, ExitCode};

use weft_plan::cluster::Network;
use weft_plan::ports::{
    Entropy, Fabric, Flow, SearchLimits, loads, plan, random_ports, switch_hashes,
};
use weft_testkit::{figure_row, json};
use weft_topo::build::{FatTree, Hpn, Rail, TopologyConfig};
use weft_topo::hash::HashAlgorithm;
use weft_topo::{Failures, NodeId, Topology};
use weft_units::Seed;

const PEERS: u64 = 2;
const QUEUE_PAIRS: usize = 4;

struct Row {
    name: &'static str,
    shape: TopologyConfig,
    hash: HashAlgorithm,
}

/// Astral's blocks, HPN's full pod, and fat trees oversubscribed 2:1 at the leaves, so that every group has 64
/// or 32 links; one row has 41 links and one Linux's hash, neither of which can be solved.
fn rows() -> Vec<Row> {
    let rail = || TopologyConfig::Rail(Rail { blocks: 16, ..Rail::default() });
    let hpn = || TopologyConfig::Hpn(Hpn { segments: 15, rails: 8, ..Hpn::default() });
    let tree = |hosts, tiers, oversubscription| {
        TopologyConfig::FatTree(FatTree { hosts, tiers, oversubscription, ..FatTree::default() })
    };
    let row = |name, shape, hash| Row { name, shape, hash };
    use HashAlgorithm::{Crc32, LinuxFields};
    vec![
        row("4k rails, 64 spines", rail(), Crc32),
        row("4k rails, 64 spines", rail(), LinuxFields),
        row("15k HPN, 60 a plane", hpn(), Crc32),
        row("16k, 2 tiers of 64", tree(16_384, 2, 2), Crc32),
        row("16k, 2 tiers of 64", tree(16_384, 2, 2), LinuxFields),
        row("131k, 3 tiers of 32", tree(131_072, 3, 2), Crc32),
        row("131k, 3 tiers of 32", tree(131_072, 3, 2), LinuxFields),
        row("131k, 3 tiers of 41", tree(131_072, 3, 1), Crc32),
    ]
}

fn main() -> ExitCode {
    let requested: Vec<usize> =
        std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    if let ([only], true) = (requested.as_slice(), std::env::var_os(SINGLE_ROW).is_some()) {
        run(&rows()[*only]);
        return ExitCode::SUCCESS;
    }
    println!(
        "{:<20} {:<18} {:>8} {:>6} {:>8} {:>7} {:>8} {:>7} {:>7} {:>8} {:>7} {:>6}",
        "GPUs",
        "hash",
        "flows",
        "bound",
        "planned",
        "random",
        "solved",
        "found",
        "fitted",
        "routes s",
        "plan s",
        "MB"
    );
    let program = std::env::current_exe().expect("a benchmark is a program");
    for number in (0..rows().len()).filter(|row| requested.is_empty() || requested.contains(row)) {
        let status = Command::new(&program).arg(number.to_string()).env(SINGLE_ROW, "1").status();
        if !status.is_ok_and(|status| status.success()) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The environment variable that is set in the process of one row.
const SINGLE_ROW: &str = "WEFT_BENCH_ALONE";

fn run(row: &Row) {
    let topology = row.shape.build().expect("the shapes of this file are valid");
    let flows = flows(&topology);
    let network = Network {
        hashes: switch_hashes(&topology, row.hash, 8, Seed(1)),
        addresses: (0..topology.hosts()).map(|host| 0x0a00_0000 + host).collect(),
        weights: Default::default(),
        names: Vec::new(),
        topology,
    };
    let start = process::process_cpu_nanos();
    let fabric = Fabric::new(&network, &Failures::none(), Entropy::default()).expect("it fits");
    let routed = process::process_cpu_nanos();
    let plan =
        plan(&fabric, &flows, SearchLimits::default(), Seed(1)).expect("every flow has a way");
    let planned = process::process_cpu_nanos();
    let megabytes = process::peak_resident_bytes() / 1_000_000;
    let random = loads(&fabric, &flows, &random_ports(&fabric, flows.len(), Seed(1)));
    let seconds = |from: u64, to: u64| (to - from) as f64 / 1e9;
    let (busiest, random) = (loads(&fabric, &flows, &plan.ports).max(), random.max());
    let figures = json!({
        "GPUs": row.name, "hash": row.hash.name(), "flows": flows.len(), "bound": plan.bound.flows, "planned": busiest,
        "of_bound": f64::from(busiest) / f64::from(plan.bound.flows), "random": random, "seconds": seconds(routed, planned), "megabytes": megabytes,
    });
    figure_row("perf-planning", &figures);
    println!(
        "{:<20} {:<18} {:>8} {:>6} {:>8} {:>7} {:>8} {:>7} {:>7} {:>8.2} {:>7.2} {:>6}",
        row.name,
        row.hash.name(),
        flows.len(),
        plan.bound.flows,
        busiest,
        random,
        plan.how.solved,
        plan.how.found,
        plan.how.fitted,
        seconds(start, routed),
        seconds(routed, planned),
        megabytes,
    );
}

fn flows(topology: &Topology) -> Vec<Flow> {
    let mut flows = Vec::new();
    for round in 0..PEERS {
        let mut peers: Vec<NodeId> = topology.host_ids().collect();
        Seed(1).child("peers", round).rng().shuffle(&mut peers);
        for (from, &destination) in topology.host_ids().zip(&peers) {
            let ports = topology.ports(from);
            let pair =
                (0..QUEUE_PAIRS).map(|qp| Flow { first: ports[qp % ports.len()], destination });
            flows.extend(pair.filter(|_| from != destination));
        }
    }
    flows
}
