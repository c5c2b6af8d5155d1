//! Astral's figure 7, at flow level: what order, rails and ports are worth to a ring all-reduce.
//!
//! `cargo bench -p weft-plan --features serde --bench placements`
//!
//! Jobs are placed on random servers, in a random order of ranks. Four queue pairs a connection, as
//! many on each port of a NIC. All rings carry equal parts and a ring goes at its slowest flow's pace,
//! which is that of the most crowded link: its rate over its flows. Nothing else slows anything, and
//! nothing else is in the network.

use weft_plan::Cluster;
use weft_plan::cluster::{ClusterConfig, ServerId};
use weft_plan::ports::{Effort, Entropy, Fabric, plan, random_ports};
use weft_plan::ring::{Ring, ring_hops, rings_as_listed, rings_on_rails, server_order, shares};
use weft_plan::traffic::queue_pairs;
use weft_topo::Failures;
use weft_units::Seed;

const QUEUE_PAIRS: usize = 4;
/// Placements of figure 7(b).
const PLACEMENTS: u64 = 200;

struct Way {
    name: &'static str,
    ordered: bool,
    on_rails: bool,
    planned_ports: bool,
}

const WAYS: [Way; 4] = [
    Way { name: "as NCCL is described", ordered: false, on_rails: false, planned_ports: false },
    Way { name: "on rails", ordered: false, on_rails: true, planned_ports: false },
    Way { name: "on rails, ordered", ordered: true, on_rails: true, planned_ports: false },
    Way { name: "all planned", ordered: true, on_rails: true, planned_ports: true },
];

/// Servers of figure 7(a)'s kind: from one block's to a large job's, of the larger cluster's 512.
const COUNTS: [usize; 6] = [8, 20, 40, 80, 140, 200];
/// Placements of each of them.
const OF_EACH: u64 = 20;

fn main() {
    let (small, large) = (cluster(4, 25), cluster(16, 32));
    println!("Bus bandwidth of a ring all-reduce, GB/s\n");
    println!("mean and standard deviation of {PLACEMENTS} placements of 4 of 100 servers");
    for way in &WAYS {
        let (mean, spread) = moments(&rates(&small, 4, way, PLACEMENTS));
        println!("{:<24} {mean:>8.1} {spread:>8.2}", way.name);
    }
    println!(
        "\nmean of {OF_EACH} placements of so many of 512 servers, and how much faster than the first"
    );
    println!("{:<24} {}", "", COUNTS.map(|count| format!("{count:>16}")).concat());
    let mut first = [0.0; COUNTS.len()];
    for way in &WAYS {
        let means = COUNTS.map(|count| moments(&rates(&large, count, way, OF_EACH)).0);
        if way.name == WAYS[0].name {
            first = means;
        }
        let cells = means.iter().zip(first);
        let cells = cells
            .map(|(mean, first)| format!("{mean:>7.1} {:>+6.0} %", 100.0 * (mean / first - 1.0)));
        println!("{:<24} {}", way.name, cells.collect::<String>());
    }
    println!("\ntransfers between servers that cross spines, %, of the same placements");
    for way in &WAYS[..3] {
        let cells = COUNTS.map(|count| format!("{:>16.1}", across(&large, count, way)));
        println!("{:<24} {}", way.name, cells.concat());
    }
}

fn rates(cluster: &Cluster, servers: usize, way: &Way, placements: u64) -> Vec<f64> {
    let rate = |placement| bandwidth(cluster, &job(cluster, servers, placement), way, placement);
    (0..placements).map(rate).collect()
}

/// Transfers that cross spines, in percent.
fn across(cluster: &Cluster, servers: usize, way: &Way) -> f64 {
    let share = |placement| {
        let (order, rings) = connect(cluster, &job(cluster, servers, placement), way);
        let counts = shares(cluster, &ring_hops(&order, &rings));
        100.0 * counts.cross_spine as f64 / counts.transfers as f64
    };
    moments(&(0..OF_EACH).map(share).collect::<Vec<f64>>()).0
}

fn cluster(blocks: u32, servers: u32) -> Cluster {
    let text = format!(
        "network = {{ kind = \"rail\", blocks = {blocks}, servers_per_block = {servers} }}"
    );
    let config: ClusterConfig = toml::from_str(&text).expect("a shape");
    let machine = config.machine.build().expect("the default");
    config.build(machine).expect("it fits")
}

fn job(cluster: &Cluster, servers: usize, placement: u64) -> Vec<ServerId> {
    let mut all: Vec<ServerId> = cluster.server_ids().collect();
    Seed(placement).child("placement", 0).rng().shuffle(&mut all);
    all.truncate(servers);
    all
}

fn connect(cluster: &Cluster, job: &[ServerId], way: &Way) -> (Vec<ServerId>, Vec<Ring>) {
    let order = if way.ordered { server_order(cluster, job) } else { job.to_vec() };
    let machine = cluster.machine();
    let rings = if way.on_rails { rings_on_rails(machine) } else { rings_as_listed(machine) };
    (order, rings)
}

/// Rails times what each carries: all of its queue pairs at the pace of the slowest anywhere.
fn bandwidth(cluster: &Cluster, job: &[ServerId], way: &Way, placement: u64) -> f64 {
    let (order, rings) = connect(cluster, job, way);
    let (_, flows) = queue_pairs(cluster, &ring_hops(&order, &rings), QUEUE_PAIRS);
    let network = cluster.network().expect("a shape is a network");
    let fabric = Fabric::new(network, &Failures::none(), Entropy::default()).expect("it fits");
    let ports = if way.planned_ports {
        plan(&fabric, &flows, Effort::default(), Seed(placement)).expect("connected").ports
    } else {
        random_ports(&fabric, flows.len(), Seed(placement))
    };
    let mut loads = vec![0u32; network.topology.links() as usize];
    for (&flow, &port) in flows.iter().zip(&ports) {
        fabric.path(flow, port).iter().for_each(|link| loads[link.index()] += 1);
    }
    let pace = network.topology.link_ids().filter(|link| loads[link.index()] > 0).map(|link| {
        network.topology.link(link).rate.as_bps() as f64 / f64::from(loads[link.index()])
    });
    pace.fold(f64::INFINITY, f64::min) * (QUEUE_PAIRS * rings.len()) as f64 / 8e9
}

fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}
