//! The queue pairs of a collective: the flows that ports are planned for.

use alloc::vec::Vec;

use crate::cluster::{Cluster, ServerId};
use crate::ports::Flow;
use crate::ring::Transfer;

/// A queue pair: one flow between two NICs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePair {
    /// The sending server and its rail.
    pub from: (ServerId, usize),
    /// The receiving server and its rail.
    pub to: (ServerId, usize),
    /// The queue pair's number within its connection, from 0.
    pub number: usize,
    /// The number of the sending NIC's port.
    pub nic_port: usize,
}

/// Returns the queue pairs of these transfers and their flows, in the same order: `per_connection` for each
/// pair of NICs, assigned round-robin to the ports of the sending NIC. Astral (section 3.4) has at least one
/// for each port, and uses four.
///
/// A pair of NICs that several transfers name has one connection.
///
/// # Panics
/// If the cluster has no network, or a transfer names a server or rail that it does not have.
pub fn queue_pairs(
    cluster: &Cluster,
    hops: &[Transfer],
    per_connection: usize,
) -> (Vec<QueuePair>, Vec<Flow>) {
    let network = cluster.network().expect("only a network has queue pairs");
    let nic = |(server, rail): (ServerId, usize)| cluster.servers()[server.index()].nics[rail];
    let mut hops = hops.to_vec();
    hops.sort_unstable();
    hops.dedup();
    let (mut pairs, mut flows) = (Vec::new(), Vec::new());
    for Transfer { from, to } in hops.into_iter().filter(|hop| hop.from != hop.to) {
        let ports = network.topology.ports(nic(from));
        for number in 0..per_connection {
            let nic_port = number % ports.len();
            pairs.push(QueuePair { from, to, number, nic_port });
            flows.push(Flow { first: ports[nic_port], destination: nic(to) });
        }
    }
    (pairs, flows)
}

/// Returns a transfer from every server to every other on each rail: an all-to-all that changes rails only
/// inside servers.
pub fn all_to_all(order: &[ServerId], rails: usize) -> Vec<Transfer> {
    let pairs = order.iter().flat_map(|&a| order.iter().map(move |&b| (a, b)));
    let apart = pairs.filter(|(a, b)| a != b);
    apart
        .flat_map(|(a, b)| (0..rails).map(move |rail| Transfer { from: (a, rail), to: (b, rail) }))
        .collect()
}
