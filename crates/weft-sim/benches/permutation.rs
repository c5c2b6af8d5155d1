//! Simulator speed: permutation traffic in 4 KB packets over non-blocking fat trees, with the transport as shipped on
//! every host.
//!
//! `cargo bench -p weft-sim --bench permutation -- [priority] [threads=N] [hosts …]`; with `priority`, ports hold
//! queues. Without `hosts` the three fabrics of the reference runs; the larger ones ([`SIZES`]) run if they are named.
//!
//! A packet-hop is one packet (data or ACK) serialised on one link. Time is the process's own processor time, set-up
//! included, so that other load on the machine has little effect; of several threads it is the first one's, which
//! does as much of the windows as any other and all that one thread must do. Each size runs in a process of its own,
//! so that its peak memory is its own. A second line gives the time of each step and the memory that it leaves allocated.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use weft_sim::bench::{peak_resident_bytes, process_cpu_nanos};
use weft_sim::fabric::FabricConfig;
use weft_sim::measure::Distribution;
use weft_sim::memory::{allocated_bytes, prefer_huge_pages};
use weft_sim::port::{Kind, PortConfig};
use weft_sim::scenario::SourcePorts;
use weft_sim::workload::{Flows, read_flow_list};
use weft_sim::world::{World, WorldConfig, base_round_trip};
use weft_sim::{SimSpan, SimTime};
use weft_testkit::{figure_row, json};
use weft_topo::build::FatTree;
use weft_topo::{Failures, NodeId, Routes};
use weft_transport::TransportConfig;
use weft_units::{BitRate, Duration, Seed};

/// A fabric and its traffic.
#[derive(Clone, Copy)]
struct Size {
    hosts: u32,
    tiers: u32,
    /// Rate of every link, Gb/s.
    gbps: u64,
    /// The length of every flow, bytes; `None` reads the flows from the matrix of the reference run.
    flow: Option<u32>,
}

/// The fabrics of the reference runs, whose flows have 2 MB, and larger ones. Flows of the largest have half a megabyte,
/// which is less than a bandwidth-delay product.
const SIZES: [Size; 6] = [
    Size { hosts: 128, tiers: 3, gbps: 100, flow: None },
    Size { hosts: 1024, tiers: 3, gbps: 200, flow: None },
    Size { hosts: 8192, tiers: 2, gbps: 400, flow: None },
    Size { hosts: 65_536, tiers: 3, gbps: 400, flow: Some(1_000_000) },
    Size { hosts: 262_144, tiers: 3, gbps: 400, flow: Some(1_000_000) },
    Size { hosts: 1_048_576, tiers: 3, gbps: 400, flow: Some(512_000) },
];

impl Size {
    /// Returns the flows; unless they are in the repository, a random permutation.
    fn flows(self) -> Flows {
        let hosts = self.hosts;
        if let Some(length) = self.flow {
            let all = (0..hosts).map(NodeId).collect();
            return Flows::permutation(all, length, SimTime::EPOCH, Seed(1));
        }
        let matrix = format!("data/permutation-{hosts}-2MB.cm.gz");
        let matrix = Path::new(env!("CARGO_MANIFEST_DIR")).join(matrix);
        Flows::new(read_flow_list(&matrix, hosts).expect("the matrix is in the repository"))
    }
}

fn main() -> ExitCode {
    let kind = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(Kind::Fifo);
    let requested: Vec<u32> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    let threads = std::env::args().find_map(|arg| arg.strip_prefix("threads=")?.parse().ok());
    let threads = threads.unwrap_or(NonZeroUsize::MIN);
    if let [hosts] = requested.as_slice() {
        return match SIZES.iter().find(|size| size.hosts == *hosts) {
            Some(&size) => {
                run(size, kind, threads);
                ExitCode::SUCCESS
            }
            None => {
                let known = SIZES.map(|size| size.hosts.to_string()).join(", ");
                eprintln!("no fabric of {hosts} hosts; known: {known}");
                ExitCode::FAILURE
            }
        };
    }
    println!(
        "{:>5} {:>6} {:>11} {:>10} {:>7} {:>7} {:>7} {:>5}  {:>7} {:>6} {:>6} {:>6}  {:>8} {:>6}",
        "hosts",
        "flows",
        "packet-hops",
        "events",
        "CPU s",
        "s",
        "ns/hop",
        "MB",
        "mean us",
        "p50",
        "p99",
        "max",
        "packets",
        "resent"
    );
    let is_requested = |size: &&Size| match requested.as_slice() {
        [] => size.flow.is_none(),
        some => some.contains(&size.hosts),
    };
    let program = std::env::current_exe().expect("a benchmark is a program");
    for Size { hosts, .. } in SIZES.iter().filter(is_requested) {
        let (hosts, threads) = (hosts.to_string(), format!("threads={threads}"));
        let status = Command::new(&program).args([kind.name(), &threads, &hosts]).status();
        if !status.is_ok_and(|status| status.success()) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The steps of a run so far: processor time and memory of each.
struct Steps {
    /// The processor time at the end of the last step, nanoseconds.
    nanos: u64,
    /// The bytes allocated then.
    bytes: usize,
    /// Each step's name, nanoseconds, and bytes that it left allocated.
    list: Vec<(&'static str, u64, usize)>,
}

impl Steps {
    fn new() -> Self {
        let (nanos, bytes) = (process_cpu_nanos(), allocated_bytes().unwrap_or(0));
        Self { nanos, bytes, list: Vec::new() }
    }

    /// Ends a step.
    fn end(&mut self, name: &'static str) {
        let (nanos, bytes) = (process_cpu_nanos(), allocated_bytes().unwrap_or(0));
        self.list.push((name, nanos - self.nanos, bytes.saturating_sub(self.bytes)));
        (self.nanos, self.bytes) = (nanos, bytes);
    }
}

impl fmt::Display for Steps {
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.iter().try_for_each(|&(name, nanos, bytes)| {
            write!(out, "  {name} {:.2} s {:.1} MB", nanos as f64 / 1e9, bytes as f64 / 1e6)
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
#[expect(clippy::disallowed_methods, reason = "a benchmark measures the machine")]
fn run(size: Size, kind: Kind, threads: NonZeroUsize) {
    let Size { hosts, tiers, gbps, .. } = size;
    let began = Instant::now();
    prefer_huge_pages();
    let flows = size.flows();
    let started = process_cpu_nanos();
    let mut steps = Steps::new();
    let rate = BitRate::gbps(gbps).expect("not zero");
    let topology = FatTree { hosts, tiers, rate, ..FatTree::default() }.build().expect("valid");
    steps.end("topology");
    let routes = Routes::compute(&topology, &Failures::none()).expect("few enough");
    steps.end("routes");
    drop(routes);
    let transport = TransportConfig { line_rate: rate, ..TransportConfig::stellar() };
    let base_rtt = base_round_trip(&topology, &transport).expect("connected");
    steps.end("base round trip");
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
    world.set_threads(threads);
    steps.end("world");
    world.add_workload(Box::new(flows));
    world.start();
    steps.end("flows");
    let done = world.run(SimTime::from_picos(10_000_000_000));
    steps.end("run");
    let spent = process_cpu_nanos() - started;
    assert!(done, "every flow finishes within 10 ms");
    report(hosts, &world, spent, began.elapsed());
    println!("{steps}");
    if kind == Kind::Fifo && threads == NonZeroUsize::MIN && size.flow.is_none() {
        record_row(hosts, spent as f64 / world.network.fabric.packet_hops() as f64);
    }
}

/// Records a row of `docs/performance/simulator.md`, whose runs have the default kind of port.
fn record_row(hosts: u32, nanos: f64) {
    let row = json!({ "hosts": hosts, "nanos": nanos, "bytes": peak_resident_bytes() });
    figure_row("perf-simulator", &row);
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn report(hosts: u32, world: &World, spent: u64, elapsed: std::time::Duration) {
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
        "{hosts:>5} {:>6} {hops:>11} {:>10} {:>7.2} {:>7.2} {:>7.1} {:>5}  {:>7.1} {:>6.1} {:>6.1} {:>6.1}  \
         {sent:>8} {retransmitted:>6}",
        finished.len(),
        network.events_handled,
        spent as f64 / 1e9,
        elapsed.as_secs_f64(),
        spent as f64 / hops as f64,
        peak_resident_bytes() / 1_000_000,
        fct.mean,
        fct.p50,
        fct.p99,
        fct.max,
    );
}
