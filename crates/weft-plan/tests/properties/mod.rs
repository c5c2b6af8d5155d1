//! The properties of every description. The mutation tests and the fuzz targets both call
//! these.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use std::collections::BTreeSet;

use weft_plan::Cluster;
use weft_plan::cluster::{ClusterConfig, ServerId};
use weft_plan::machine::{Machine, read_nccl};
use weft_plan::output::{graph_xml, port_csv, read_port_csv, read_port_rows};
use weft_plan::ports::{Entropy, Fabric, SearchLimits, loads, plan};
use weft_plan::ring::{ring_hops, rings_on_rails, server_order};
use weft_plan::traffic::queue_pairs;
use weft_plan::tuner::{read_tuner_csv, tuner_csv};
use weft_topo::Failures;
use weft_units::Seed;

/// Maximum number of devices of a machine for which rings and ports are planned.
const MAX_DEVICES: usize = 64;

/// Parses NCCL's topology and checks the rings of the machine. Returns `true` if it is a machine.
pub fn nccl(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let machine = match read_nccl(&text) {
        Ok(machine) => machine,
        Err(error) => return refused(&error.to_string()),
    };
    if machine.devices().len() <= MAX_DEVICES {
        check_rings(&machine);
    }
    true
}

fn check_rings(machine: &Machine) {
    let rings = rings_on_rails(machine);
    assert_eq!(rings.len(), machine.nics().len());
    let all: BTreeSet<_> = machine.gpus().into_iter().collect();
    for ring in &rings {
        assert_eq!(ring.gpus.len(), all.len());
        assert_eq!(ring.gpus.iter().copied().collect::<BTreeSet<_>>(), all);
    }
    let graph = graph_xml(machine, &rings);
    roxmltree::Document::parse(&graph).expect("what is written is XML");
}

/// Parses a cluster and plans rings and ports on it. Returns `true` if it is a cluster. Shapes are only parsed, because
/// one digit more makes them huge.
pub fn cluster(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let config: ClusterConfig = match toml::from_str(&text) {
        Ok(config) => config,
        Err(_) => return false,
    };
    let machine = match config.machine.build() {
        Ok(machine) => machine,
        Err(error) => return refused(&error.to_string()),
    };
    if config.network.is_some() || machine.devices().len() > MAX_DEVICES {
        return true;
    }
    match config.build(machine) {
        Ok(cluster) => check_plan(&cluster),
        Err(error) => refused(&error.to_string()),
    }
}

fn check_plan(cluster: &Cluster) -> bool {
    let job: Vec<ServerId> = cluster.server_ids().collect();
    let order = server_order(cluster, &job);
    assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), job.len());
    let hops = ring_hops(&order, &rings_on_rails(cluster.machine()));
    let Some(network) = cluster.network() else { return true };
    let (_, flows) = queue_pairs(cluster, &hops, 2);
    let fabric = Fabric::new(network, &Failures::none(), Entropy::default()).expect("small");
    let limits = SearchLimits { tries: 16, total: 4_096, rounds: 2 };
    match plan(&fabric, &flows, limits, Seed(1)) {
        Ok(plan) => assert!(loads(&fabric, &flows, &plan.ports).max() >= plan.bound.flows),
        Err(error) => return refused(&error.to_string()),
    }
    true
}

/// Parses a port table and checks that no port is zero and that all rows read back as they are written. Returns `true`
/// if it is a table.
pub fn ports(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(rows) = read_port_rows(&text) {
        assert_eq!(read_port_rows(&port_csv(&rows)), Ok(rows), "{text}");
    }
    match read_port_csv(&text) {
        Ok(rows) => rows.iter().all(|row| row.port != 0),
        Err(error) => refused(&error.to_string()),
    }
}

/// Parses a tuner's table and checks that all rows read back as they are written. Returns `true` if it is a table.
pub fn tuner(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    match read_tuner_csv(&text) {
        Ok(rows) => {
            assert_eq!(read_tuner_csv(&tuner_csv(&rows)), Ok(rows), "{text}");
            true
        }
        Err(error) => refused(&error.to_string()),
    }
}

fn refused(error: &str) -> bool {
    assert!(!error.is_empty() && !error.contains('\n'), "{error}");
    false
}
