//! Simulator speed: permutation traffic of 2 MB flows in 4 KB packets over non-blocking fat trees,
//! with the transport as shipped on every host.
//!
//! `cargo bench -p weft-sim --bench permutation -- [hosts …]`

use std::io::Read;
use std::process::ExitCode;

use weft_sim::bench::{peak_resident_bytes, process_cpu_nanos};
use weft_sim::fabric::FabricConfig;
use weft_sim::workload::{Flow, Flows};
use weft_sim::world::{World, WorldConfig, base_round_trip};
use weft_sim::{SimSpan, SimTime};
use weft_topo::NodeId;
use weft_topo::build::FatTree;
use weft_transport::TransportConfig;
use weft_units::{BitRate, Duration, Seed};

const MATRICES: [(u32, &[u8]); 3] = [
    (128, include_bytes!("../data/permutation-128-2MB.cm.gz")),
    (1024, include_bytes!("../data/permutation-1024-2MB.cm.gz")),
    (8192, include_bytes!("../data/permutation-8192-2MB.cm.gz")),
];

fn flows(matrix: &[u8]) -> Vec<Flow> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(matrix).read_to_string(&mut text).expect("gzip text");
    let flow = |line: &str| {
        let (source, rest) = line.split_once("->")?;
        let destination = rest.split(' ').next()?;
        let node = |text: &str| Some(NodeId(text.parse().ok()?));
        let (source, destination) = (node(source)?, node(destination)?);
        Some(Flow { source, destination, length: 2_000_000, start: SimTime::EPOCH })
    };
    text.lines().filter_map(flow).collect()
}

fn run(hosts: u32, matrix: &[u8]) {
    let (tiers, gbps) = match hosts {
        128 => (3, 100),
        1024 => (3, 200),
        _ => (2, 400),
    };
    let rate = BitRate::gbps(gbps).expect("not zero");
    let topology = FatTree { hosts, tiers, rate, ..FatTree::default() }.build().expect("valid");
    let transport = TransportConfig { line_rate: rate, ..TransportConfig::stellar() };
    let base_rtt = base_round_trip(&topology, &transport).expect("connected");
    let config = WorldConfig {
        transport: TransportConfig { base_rtt, ..transport },
        fabric: FabricConfig::default(),
        handshake: false,
        place_delay: Duration::ZERO,
        jitter: SimSpan::from_picos(1_000),
        nic_packets: 4,
        reroute_after: None,
    };
    let started = process_cpu_nanos();
    let mut world = World::new(topology, config, Seed(1)).expect("valid");
    world.add_workload(Box::new(Flows::new(flows(matrix))));
    world.start();
    let done = world.run(SimTime::from_picos(10_000_000_000));
    let spent = process_cpu_nanos() - started;
    let network = &world.network;
    let hops = network.fabric.packet_hops();
    let mut times: Vec<f64> = network
        .traffic
        .finished
        .iter()
        .map(|flow| flow.sent.since(flow.submitted).as_micros_f64())
        .collect();
    times.sort_by(f64::total_cmp);
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let at = |fraction: f64| times[((times.len() - 1) as f64 * fraction) as usize];
    let events = network.events_handled;
    let resident = peak_resident_bytes() >> 20;
    println!(
        "{hosts:>5} {:>6} {hops:>11} {events:>11} {:>8.2} {:>8.1} {resident:>6}   \
         {mean:>6.1} {:>6.1} {:>6.1} {:>6.1}  {done}",
        times.len(),
        spent as f64 / 1e9,
        spent as f64 / hops as f64,
        at(0.5),
        at(0.99),
        at(1.0),
    );
    let stats = network.hosts.iter().map(|host| host.endpoint.stats());
    let sum = stats.fold([0; 4], |[a, b, c, d], s| {
        [
            a + s.data_sent,
            b + s.fast_retransmits,
            c + s.timeout_retransmits,
            d + s.spurious_retransmits,
        ]
    });
    println!("      sent, fast, timeout, spurious: {sum:?}  {:?}", network.fabric.counters);
}

fn main() -> ExitCode {
    println!(
        "{:>5} {:>6} {:>11} {:>11} {:>8} {:>8} {:>6}   {:>6} {:>6} {:>6} {:>6}",
        "hosts",
        "flows",
        "packet-hops",
        "events",
        "CPU s",
        "ns/hop",
        "MB",
        "mean",
        "p50",
        "p99",
        "max us"
    );
    let asked: Vec<u32> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    for (hosts, matrix) in MATRICES {
        if asked.is_empty() || asked.contains(&hosts) {
            run(hosts, matrix);
        }
    }
    ExitCode::SUCCESS
}
