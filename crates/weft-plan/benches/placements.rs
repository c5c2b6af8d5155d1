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

fn main() {
    println!("Bus bandwidth of a ring all-reduce, GB/s, mean and standard deviation of placements");
    println!("{:<24} {:>10} {:>10} {:>10} {:>14}", "", "4 of 100", "", "140 of 512", "");
    let (small, large) = (cluster(4, 25), cluster(16, 32));
    for way in &WAYS {
        let [(four, spread), (many, wide)] =
            [(&small, 4, PLACEMENTS), (&large, 140, 20)].map(|(cluster, servers, placements)| {
                let rate = |placement| {
                    bandwidth(cluster, &job(cluster, servers, placement), way, placement)
                };
                moments(&(0..placements).map(rate).collect::<Vec<f64>>())
            });
        println!("{:<24} {four:>10.1} {spread:>10.2} {many:>10.1} {wide:>14.2}", way.name);
    }
    println!(
        "\nTransfers between servers that cross spines, %, mean of 20 placements of 140 of 512 servers"
    );
    for way in &WAYS[..3] {
        let share = |placement| {
            let (order, rings) = connect(&large, &job(&large, 140, placement), way);
            let counts = shares(&large, &ring_hops(&order, &rings));
            100.0 * counts.cross_spine as f64 / counts.transfers as f64
        };
        let (mean, _) = moments(&(0..20).map(share).collect::<Vec<f64>>());
        println!("{:<24} {mean:>10.1}", way.name);
    }
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
