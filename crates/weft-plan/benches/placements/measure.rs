//! Rings of randomly placed jobs, and the share of their NICs' bandwidth that they reach.

use weft_plan::Cluster;
use weft_plan::cluster::{ClusterConfig, ServerId};
use weft_plan::ports::{Entropy, Fabric, SearchLimits, plan, random_ports};
use weft_plan::ring::{Ring, ring_hops, rings_as_listed, rings_on_rails, server_order, shares};
use weft_plan::traffic::queue_pairs;
use weft_testkit::{Value, json};
use weft_topo::{Failures, LinkId, Topology};
use weft_units::Seed;

/// Number of queue pairs of a connection.
const QUEUE_PAIRS: usize = 4;
/// Number of placements of figure 7(b).
pub(crate) const PLACEMENTS: u64 = 200;
/// Numbers of servers of figure 7(a): from one block to a large job, of the larger cluster's 512.
pub(crate) const COUNTS: [usize; 6] = [8, 20, 40, 80, 140, 200];
/// Number of placements of each.
pub(crate) const PLACEMENTS_EACH: u64 = 20;

/// A variant, by the parts of a job's communication that it plans.
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    ordered: bool,
    on_rails: bool,
    planned_ports: bool,
}

pub(crate) const VARIANTS: [Variant; 4] = [
    Variant { name: "as NCCL is described", ordered: false, on_rails: false, planned_ports: false },
    Variant { name: "on rails", ordered: false, on_rails: true, planned_ports: false },
    Variant { name: "on rails and ordered", ordered: true, on_rails: true, planned_ports: false },
    Variant { name: "all planned", ordered: true, on_rails: true, planned_ports: true },
];

/// The links that limit a flow.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Counted {
    /// All links of the path, including the cables of both NICs.
    All,
    /// Links between switches only, as if a NIC's two cables shared its flows evenly.
    BetweenSwitches,
}

impl Counted {
    pub(crate) const EACH: [(Self, &'static str); 2] =
        [(Self::All, "all"), (Self::BetweenSwitches, "between switches")];
}

/// Returns the mean bandwidth by number of servers in GB/s, and the gain over the first variant in %.
pub(crate) fn figure_7a() -> Vec<Value> {
    let cluster = cluster(16, 32);
    let mut rows = vec![];
    for servers in COUNTS {
        let mut first = None;
        for variant in &VARIANTS {
            let rates = (0..PLACEMENTS_EACH).map(|placement| {
                let job = job(&cluster, servers, placement);
                bandwidth(&cluster, &job, variant, placement, Counted::All)
            });
            let mean = moments(&rates.collect::<Vec<f64>>()).0;
            let more = 100.0 * (mean / *first.get_or_insert(mean) - 1.0);
            rows.push(
                json!({ "way": variant.name, "servers": servers, "bandwidth": mean, "more": more }),
            );
        }
    }
    rows
}

/// Returns mean and standard deviation over placements of 4 of 100 servers in GB/s, and the deviation in % of the mean.
pub(crate) fn figure_7b() -> Vec<Value> {
    let cluster = cluster(4, 25);
    let mut rows = vec![];
    for (counted, links) in Counted::EACH {
        for variant in &VARIANTS {
            let rates = (0..PLACEMENTS).map(|placement| {
                bandwidth(&cluster, &job(&cluster, 4, placement), variant, placement, counted)
            });
            let (mean, deviation) = moments(&rates.collect::<Vec<f64>>());
            rows.push(json!({
                "way": variant.name, "links": links, "mean": mean, "deviation": deviation,
                "of mean": 100.0 * deviation / mean,
            }));
        }
    }
    rows
}

/// Returns the transfers between servers that cross spines in %, and the reduction against the first variant in %.
pub(crate) fn figure_7c() -> Vec<Value> {
    let cluster = cluster(16, 32);
    let mut rows = vec![];
    for servers in COUNTS {
        let mut first = None;
        for variant in &VARIANTS[..3] {
            let crossing = across(&cluster, servers, variant);
            let fewer = 100.0 * (1.0 - crossing / *first.get_or_insert(crossing));
            rows.push(json!({ "way": variant.name, "servers": servers, "crossing": crossing, "fewer": fewer }));
        }
    }
    rows
}

/// Returns the share of transfers that cross spines, in percent.
fn across(cluster: &Cluster, servers: usize, variant: &Variant) -> f64 {
    let share = |placement| {
        let (order, rings) = connect(cluster, &job(cluster, servers, placement), variant);
        let counts = shares(cluster, &ring_hops(&order, &rings));
        100.0 * counts.cross_spine as f64 / counts.transfers as f64
    };
    moments(&(0..PLACEMENTS_EACH).map(share).collect::<Vec<f64>>()).0
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

fn connect(cluster: &Cluster, job: &[ServerId], variant: &Variant) -> (Vec<ServerId>, Vec<Ring>) {
    let order = if variant.ordered { server_order(cluster, job) } else { job.to_vec() };
    let machine = cluster.machine();
    let rings = if variant.on_rails { rings_on_rails(machine) } else { rings_as_listed(machine) };
    (order, rings)
}

/// Returns the number of rails times the bandwidth of each: all queue pairs at the rate of the slowest, at most
/// the NIC's rate divided by its queue pairs.
fn bandwidth(
    cluster: &Cluster,
    job: &[ServerId],
    variant: &Variant,
    placement: u64,
    counted: Counted,
) -> f64 {
    let (order, rings) = connect(cluster, job, variant);
    let (_, flows) = queue_pairs(cluster, &ring_hops(&order, &rings), QUEUE_PAIRS);
    let network = cluster.network().expect("a shape is a network");
    let fabric = Fabric::new(network, &Failures::none(), Entropy::default()).expect("it fits");
    let ports = if variant.planned_ports {
        plan(&fabric, &flows, SearchLimits::default(), Seed(placement)).expect("connected").ports
    } else {
        random_ports(&fabric, flows.len(), Seed(placement))
    };
    let topology = &network.topology;
    let mut loads = vec![0u32; topology.links() as usize];
    for (&flow, &port) in flows.iter().zip(&ports) {
        fabric.path(flow, port).iter().for_each(|link| loads[link.index()] += 1);
    }
    let rate = |link: LinkId| topology.link(link).rate.as_bps() as f64;
    let pace = |link: LinkId| rate(link) / f64::from(loads[link.index()]);
    let loaded = topology.link_ids().filter(|link| loads[link.index()] > 0);
    let counts = |link: &LinkId| counted == Counted::All || is_between_switches(topology, *link);
    // The bandwidth of a queue pair if its NIC's cables share the queue pairs evenly.
    let even = topology.ports(topology.link(flows[0].first).from).iter();
    let even = even.map(|&port| rate(port)).sum::<f64>() / QUEUE_PAIRS as f64;
    loaded.filter(counts).map(pace).fold(even, f64::min) * (QUEUE_PAIRS * rings.len()) as f64 / 8e9
}

fn is_between_switches(topology: &Topology, link: LinkId) -> bool {
    let link = topology.link(link);
    !topology.is_host(link.from) && !topology.is_host(link.to)
}

fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}
