//! How much of the traffic between servers leaves its rail, its block, its leaf.

use super::Hop;
use crate::cluster::Cluster;

/// Transfers between servers, and how many of them cross what. In a ring every transfer carries
/// as much, so shares of transfers are shares of traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Shares {
    /// All transfers.
    pub transfers: u64,
    /// Those that arrive on another rail than they left by.
    pub cross_rail: u64,
    /// Those between blocks.
    pub cross_block: u64,
    /// Those that pass a spine: both ends share no leaf.
    pub cross_spine: u64,
}

/// Counts what the transfers cross.
///
/// # Panics
/// If a transfer names a server or rail that is not in the cluster.
pub fn shares(cluster: &Cluster, hops: &[Hop]) -> Shares {
    hops.iter().fold(Shares::default(), |sum, &Hop { from, to }| Shares {
        transfers: sum.transfers + 1,
        cross_rail: sum.cross_rail + u64::from(from.1 != to.1),
        cross_block: sum.cross_block + u64::from(cluster.block(from.0) != cluster.block(to.0)),
        cross_spine: sum.cross_spine + u64::from(!cluster.share_leaf(from, to)),
    })
}
