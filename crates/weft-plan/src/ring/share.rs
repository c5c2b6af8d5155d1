//! The share of the traffic between servers that leaves its rail, block or leaf.

use super::Transfer;
use crate::cluster::Cluster;

/// Transfers between servers, by what they cross. In a ring all transfers carry the same number of bytes, so
/// shares of transfers are shares of traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Shares {
    /// Number of transfers.
    pub transfers: u64,
    /// Number that arrive on a different rail.
    pub cross_rail: u64,
    /// Number between blocks.
    pub cross_block: u64,
    /// Number that pass a spine: their ends share no leaf.
    pub cross_spine: u64,
}

/// Counts transfers by what they cross.
///
/// # Panics
/// If a transfer names a server or rail that the cluster does not have.
pub fn shares(cluster: &Cluster, hops: &[Transfer]) -> Shares {
    hops.iter().fold(Shares::default(), |sum, &Transfer { from, to }| Shares {
        transfers: sum.transfers + 1,
        cross_rail: sum.cross_rail + u64::from(from.1 != to.1),
        cross_block: sum.cross_block + u64::from(cluster.block(from.0) != cluster.block(to.0)),
        cross_spine: sum.cross_spine + u64::from(!cluster.share_leaf(from, to)),
    })
}
