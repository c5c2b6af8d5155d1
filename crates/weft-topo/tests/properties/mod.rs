//! The properties of every topology file, for the mutation test and the fuzz target.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use weft_topo::{Failures, NodeId, Routes, read_ns3, write_ns3};

/// Maximum number of nodes of a network whose routes are computed.
const MAX_ROUTED_NODES: u32 = 64;

/// Reads a topology file, checks the properties of the topology, and returns `true` if the file was valid.
///
/// # Panics
/// Panics if a property does not hold.
pub fn topology(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let topology = match read_ns3(&text) {
        Ok(topology) => topology,
        Err(error) => {
            let error = error.to_string();
            assert!(error.len() < 1_000 && !error.contains('\n'), "{error}");
            return false;
        }
    };
    let written = write_ns3(&topology).expect("the file had one link for each pair");
    let again = read_ns3(&written).expect("what was written is a topology file");
    assert_eq!(write_ns3(&again).as_ref(), Ok(&written));
    for link in topology.link_ids() {
        assert_eq!(topology.link(link), again.link(link));
        assert_eq!(topology.link(link.reverse()).from, topology.link(link).to);
    }
    if topology.nodes() <= MAX_ROUTED_NODES
        && let Ok(routes) = Routes::compute(&topology, &Failures::none())
    {
        for host in topology.host_ids() {
            let _ = routes.path_count(&topology, host, NodeId(0));
        }
    }
    true
}
