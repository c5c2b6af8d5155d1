//! Simulator speed: permutation traffic of 2 MB flows in 4 KB packets over non-blocking fat trees,
//! with the transport as shipped on every host.
//!
//! `cargo bench -p weft-sim --bench permutation -- [priority] [hosts …]`; with `priority`, ports hold queues.
//!
//! A packet-hop is one packet (data or ACK) serialised on one link. Time is the process's own processor time, set-up
//! included, so that other load on the machine has little effect. Each size runs in a process of its own, so that its
//! peak memory is its own.

use std::path::Path;
use std::process::{Command, ExitCode};

use weft_sim::bench::{peak_resident_bytes, process_cpu_nanos};
use weft_sim::fabric::FabricConfig;
use weft_sim::measure::Distribution;
use weft_sim::memory::prefer_huge_pages;
use weft_sim::port::{Kind, PortConfig};
use weft_sim::scenario::SourcePorts;
use weft_sim::workload::{Flows, read_flow_list};
use weft_sim::world::{World, WorldConfig, base_round_trip};
use weft_sim::{SimSpan, SimTime};
use weft_testkit::{figure_row, json};
use weft_topo::build::FatTree;
use weft_transport::TransportConfig;
use weft_units::{BitRate, Duration, Seed};

/// Hosts, tiers, link rate in Gb/s: the fabrics of the reference runs.
const SIZES: [(u32, u32, u64); 3] = [(128, 3, 100), (1024, 3, 200), (8192, 2, 400)];

fn main() -> ExitCode {
    let kind = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(Kind::Fifo);
    let requested: Vec<u32> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    if let [hosts] = requested.as_slice() {
        return match SIZES.iter().find(|(known, ..)| known == hosts) {
            Some(&(hosts, tiers, gbps)) => {
                run(hosts, tiers, gbps, kind);
                ExitCode::SUCCESS
            }
            None => {
                eprintln!("no matrix for {hosts} hosts; known: 128, 1024, 8192");
                ExitCode::FAILURE
            }
        };
    }
    println!(
        "{:>5} {:>6} {:>11} {:>10} {:>7} {:>7} {:>5}  {:>7} {:>6} {:>6} {:>6}  {:>8} {:>6}",
        "hosts",
        "flows",
        "packet-hops",
        "events",
        "CPU s",
        "ns/hop",
        "MB",
        "mean us",
        "p50",
        "p99",
        "max",
        "packets",
        "resent"
    );
    let sizes = SIZES.iter().map(|(hosts, ..)| *hosts);
    let program = std::env::current_exe().expect("a benchmark is a program");
    for hosts in sizes.filter(|hosts| requested.is_empty() || requested.contains(hosts)) {
        let status = Command::new(&program).args([kind.name(), &hosts.to_string()]).status();
        if !status.is_ok_and(|status| status.success()) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn run(hosts: u32, tiers: u32, gbps: u64, kind: Kind) {
    let matrix = format!("data/permutation-{hosts}-2MB.cm.gz");
    let matrix = Path::new(env!("CARGO_MANIFEST_DIR")).join(matrix);
    let flows = read_flow_list(&matrix, hosts).expect("the matrix is in the repository");
    let started = process_cpu_nanos();
    prefer_huge_pages();
    let rate = BitRate::gbps(gbps).expect("not zero");
    let topology = FatTree { hosts, tiers, rate, ..FatTree::default() }.build().expect("valid");
    let transport = TransportConfig { line_rate: rate, ..TransportConfig::stellar() };
    let base_rtt = base_round_trip(&topology, &transport).expect("connected");
    let port = PortConfig { kind, ..PortConfig::default() };
    let config = WorldConfig {
        transport: TransportConfig { base_rtt, ..transport },
        fabric: FabricConfig { port, ..FabricConfig::default() },
        handshake: false,
        place_delay: Duration::ZERO,
        pcie: None,
        stack: None,
        jitter: SimSpan::from_picos(100_000),
        nic_packets: 4,
        bond: false,
        source_ports: SourcePorts::Random,
        reroute_after: None,
        controller: None,
    };
    let mut world = World::new(topology, config, Seed(1)).expect("valid");
    world.add_workload(Box::new(Flows::new(flows)));
    world.start();
    let done = world.run(SimTime::from_picos(10_000_000_000));
    let spent = process_cpu_nanos() - started;
    assert!(done, "every flow finishes within 10 ms");
    report(hosts, &world, spent);
    if kind == Kind::Fifo {
        record_row(hosts, spent as f64 / world.network.fabric.packet_hops() as f64);
    }
}

/// Records a row of `docs/performance/simulator.md`, whose runs have the default kind of port.
fn record_row(hosts: u32, nanos: f64) {
    let row = json!({ "hosts": hosts, "nanos": nanos, "bytes": peak_resident_bytes() });
    figure_row("perf-simulator", &row);
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn report(hosts: u32, world: &World, spent: u64) {
    let network = &world.network;
    let hops = network.fabric.packet_hops();
    let finished = &network.traffic.finished;
    let times = finished.iter().map(|flow| flow.acknowledged.since(flow.submitted).as_micros_f64());
    let fct = Distribution::of(&mut times.collect::<Vec<_>>());
    let stats = network.hosts.iter().map(|host| host.endpoint.stats());
    let (sent, retransmitted) = stats.fold((0, 0), |(sent, retransmitted), stats| {
        (sent + stats.data_sent, retransmitted + stats.retransmissions())
    });
    println!(
        "{hosts:>5} {:>6} {hops:>11} {:>10} {:>7.2} {:>7.1} {:>5}  {:>7.1} {:>6.1} {:>6.1} {:>6.1}  \
         {sent:>8} {retransmitted:>6}",
        finished.len(),
        network.events_handled,
        spent as f64 / 1e9,
        spent as f64 / hops as f64,
        peak_resident_bytes() / 1_000_000,
        fct.mean,
        fct.p50,
        fct.p99,
        fct.max,
    );
}
