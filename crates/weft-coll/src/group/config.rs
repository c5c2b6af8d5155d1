//! The configuration of a group.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::Channel;
use crate::Algorithm;

/// The configuration of a group, which is equal at all its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The ranks of each server, in the order of rings and chains as `weft plan ring` computes it; each rank once. Where
    /// servers are not known, each rank is one.
    pub servers: Vec<Vec<usize>>,
    /// The number of each rank's block of the fabric, by rank: hosts behind one leaf, as `weft plan ring` and a route
    /// controller name them. A server is in the block of its first rank. Empty where blocks are not known.
    pub blocks: Vec<u32>,
    /// The algorithm of all-reduces of long buffers, and of short all-to-alls.
    pub algorithm: Algorithm,
    /// Maximum length of a message body in bytes.
    pub max_body: usize,
    /// Number of blocks of a channel that a rank may be ahead of another.
    pub window: u32,
    /// Number of blocks of a channel that a rank processes at a time.
    pub max_in_flight: u32,
    /// The only channel to use; `None` for both: blocks of long calls are shared between them, and short calls
    /// use the inner one.
    pub channel: Option<Channel>,
}

impl Config {
    /// Returns a configuration that suits most networks: pieces that fill a block of 64 KiB of the messaging
    /// layer's memory, and windows that keep some megabytes in flight.
    pub fn of(ranks: usize, only: Option<Channel>) -> Self {
        Self {
            servers: alone(0..ranks),
            blocks: Vec::new(),
            algorithm: Algorithm::default(),
            max_body: (64 << 10) - 64,
            window: 32,
            max_in_flight: 16,
            channel: only,
        }
    }

    /// Returns the configuration with another order of ranks, each of which is a server.
    #[must_use]
    pub fn in_order(self, order: Vec<usize>) -> Self {
        Self { servers: alone(order), ..self }
    }

    /// Returns the servers of each block, in the order of the blocks' first servers.
    pub(crate) fn servers_by_block(&self) -> Vec<Vec<Vec<usize>>> {
        let mut places: BTreeMap<Option<u32>, usize> = BTreeMap::new();
        let mut blocks: Vec<Vec<Vec<usize>>> = Vec::new();
        for server in &self.servers {
            let block = server.first().and_then(|&rank| self.blocks.get(rank)).copied();
            let place = *places.entry(block).or_insert(blocks.len());
            if place == blocks.len() {
                blocks.push(Vec::new());
            }
            blocks[place].push(server.clone());
        }
        blocks
    }

    /// Returns the number of ranks.
    pub(crate) fn ranks(&self) -> usize {
        self.servers.iter().map(Vec::len).sum()
    }
}

/// Returns servers of one rank each.
pub(super) fn alone(order: impl IntoIterator<Item = usize>) -> Vec<Vec<usize>> {
    order.into_iter().map(|rank| [rank].into()).collect()
}

/// Checks that each rank has a block, or none has.
///
/// # Panics
/// If some have.
pub(super) fn check_blocks(blocks: &[u32], ranks: usize) {
    assert!(
        blocks.is_empty() || blocks.len() == ranks,
        "{} blocks for {ranks} ranks",
        blocks.len()
    );
}

/// Checks that servers name every rank once.
///
/// # Panics
/// If they do not.
pub(super) fn check_servers(servers: &[Vec<usize>], ranks: usize) {
    let named: BTreeSet<usize> = servers.iter().flatten().copied().collect();
    let count: usize = servers.iter().map(Vec::len).sum();
    assert!(count == ranks && named.into_iter().eq(0..ranks), "each rank once");
    assert!(servers.iter().all(|server| !server.is_empty()), "a server has a rank");
}
