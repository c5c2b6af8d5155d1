//! Rings and trees that keep to their rails and blocks: TCCL's hierarchical, topology-aware path
//! planning (Astral, section 3.2).
//!
//! A ring consists of a server order Ψ, which all rings share, and for each rail the path `p_intra` through a
//! server: it enters at a NIC, passes every GPU, and leaves at a NIC.

mod intra;
mod share;
mod tree;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

pub use intra::{NicPath, Ring, rings_as_listed, rings_on_rails};
pub use share::{Shares, shares};
pub(crate) use tree::binary;
pub use tree::{Tree, double_tree, tree_as_listed};

use crate::cluster::{Cluster, ServerId};

/// Returns the servers of a job ordered so that those of a block are adjacent, and blocks of a pod. Ties keep
/// the order of `job`, and blocks keep the order of their first appearance: an ordered job does not change.
///
/// A ring over `k` blocks then has `k` transfers between blocks, which is the minimum.
///
/// # Panics
/// If the cluster has no such server.
pub fn server_order(cluster: &Cluster, job: &[ServerId]) -> Vec<ServerId> {
    // Sets are renumbered by first appearance, from the widest down.
    let mut first: BTreeMap<Vec<u32>, usize> = BTreeMap::new();
    for (position, &server) in job.iter().enumerate() {
        let place = cluster.place(server);
        for depth in 1..=place.len() {
            first.entry(place[..depth].to_vec()).or_insert(position);
        }
    }
    let key = |&server: &ServerId| {
        let place = cluster.place(server);
        (1..=place.len()).map(|depth| first[&place[..depth]]).collect::<Vec<usize>>()
    };
    let mut order = job.to_vec();
    order.sort_by_cached_key(key);
    order
}

/// One transfer between servers, with the rails of its sender and receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Transfer {
    /// The sending server and its rail.
    pub from: (ServerId, usize),
    /// The receiving server and its rail.
    pub to: (ServerId, usize),
}

/// Returns the transfers of every ring around `order`; none for a single server.
pub fn ring_hops(order: &[ServerId], rings: &[Ring]) -> Vec<Transfer> {
    if order.len() < 2 {
        return Vec::new();
    }
    let next = order.iter().cycle().skip(1);
    let pairs: Vec<_> = order.iter().copied().zip(next.copied()).collect();
    let hop = |ring: &Ring, (a, b)| Transfer { from: (a, ring.rail_out), to: (b, ring.rail_in) };
    rings.iter().flat_map(|ring| pairs.iter().map(move |&pair| hop(ring, pair))).collect()
}

#[cfg(test)]
mod tests;
