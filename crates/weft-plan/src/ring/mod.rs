//! Rings and trees that keep to their rails and blocks: TCCL's hierarchical, topology-aware path
//! planning (Astral, section 3.2).
//!
//! A ring is a server order Ψ, which all rings share, and for each rail the path `p_intra` that
//! it takes through a server: in at a NIC, through every GPU, out at a NIC.

mod intra;
mod share;
mod tree;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

pub use intra::{Exit, Ring, rings_as_listed, rings_on_rails};
pub use share::{Shares, shares};
pub(crate) use tree::binary;
pub use tree::{Tree, double_tree, tree_as_listed};

use crate::cluster::{Cluster, ServerId};

/// The servers of a job so that those of a block follow each other, and blocks of a pod. Among
/// equals the order of `job` stays, as does the order in which blocks first appear: a job that is
/// in order already keeps it.
///
/// A ring over `k` blocks then crosses between blocks `k` times, which is the least possible.
///
/// # Panics
/// If a server is not in the cluster.
pub fn server_order(cluster: &Cluster, job: &[ServerId]) -> Vec<ServerId> {
    // Sets are renumbered by first appearance, from the widest in.
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

/// One transfer between servers: a server and the rail it leaves by, a server and the rail it
/// arrives by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hop {
    /// Who sends, and on which rail.
    pub from: (ServerId, usize),
    /// Who receives, and on which rail.
    pub to: (ServerId, usize),
}

/// The transfers of every ring around `order`; none for a single server.
pub fn ring_hops(order: &[ServerId], rings: &[Ring]) -> Vec<Hop> {
    if order.len() < 2 {
        return Vec::new();
    }
    let next = order.iter().cycle().skip(1);
    let pairs: Vec<_> = order.iter().copied().zip(next.copied()).collect();
    let hop = |ring: &Ring, (a, b)| Hop { from: (a, ring.rail_out), to: (b, ring.rail_in) };
    rings.iter().flat_map(|ring| pairs.iter().map(move |&pair| hop(ring, pair))).collect()
}

#[cfg(test)]
mod tests;
