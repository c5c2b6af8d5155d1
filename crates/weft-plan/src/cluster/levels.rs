//! Proximity of servers: sets of servers that are connected over the lower tiers of switches.

use alloc::vec::Vec;

use weft_topo::{NodeId, Topology};

use super::Server;

/// Returns, for each tier of switches from the lowest up, the set of each server when only switches up to that
/// tier remain. Sets are numbered by first server. Tiers that connect all servers are left out, except the
/// lowest.
pub(super) fn levels(topology: &Topology, servers: &[Server]) -> Vec<Vec<u32>> {
    let highest = topology.switch_ids().map(|switch| topology.tier(switch)).max().unwrap_or(1);
    let mut levels: Vec<Vec<u32>> = Vec::new();
    for tier in 1..=highest {
        let level = level(topology, servers, tier);
        let splits = level.iter().any(|&set| set > 0);
        if splits || levels.is_empty() {
            levels.push(level);
        }
    }
    levels
}

fn level(topology: &Topology, servers: &[Server], tier: u8) -> Vec<u32> {
    let mut sets: Vec<u32> = (0..topology.nodes()).collect();
    for link in topology.link_ids() {
        let link = topology.link(link);
        if topology.tier(link.from).max(topology.tier(link.to)) <= tier {
            join(&mut sets, link.from, link.to);
        }
    }
    for server in servers {
        for pair in server.nics.windows(2) {
            join(&mut sets, pair[0], pair[1]);
        }
    }
    let mut numbers: Vec<Option<u32>> = alloc::vec![None; sets.len()];
    let mut next = 0;
    let number = |server: &Server| {
        let root = server.nics.first().map_or(0, |&nic| root(&mut sets, nic.0));
        *numbers[root as usize].get_or_insert_with(|| {
            next += 1;
            next - 1
        })
    };
    servers.iter().map(number).collect()
}

fn join(sets: &mut [u32], a: NodeId, b: NodeId) {
    let (a, b) = (root(sets, a.0), root(sets, b.0));
    sets[a.max(b) as usize] = a.min(b);
}

/// Returns the set's representative with path halving (Tarjan and van Leeuwen 1984).
fn root(sets: &mut [u32], mut node: u32) -> u32 {
    while sets[node as usize] != node {
        sets[node as usize] = sets[sets[node as usize] as usize];
        node = sets[node as usize];
    }
    node
}
