//! Collectives as schedules: for every rank a list of steps over chunks of its buffer. `weft-coll` performs the steps
//! over messages or shared memory; [`run`] performs them in memory, in one process.
//!
//! A send never waits; a receive waits for the peer's next message. Messages between two ranks arrive in the order
//! of their sends, so steps need no tags.

mod all_reduce;
mod all_to_all;
mod barrier;
mod broadcast;
mod chunks;
mod element;
mod float8;
mod gather;
mod hybrid;
mod kind;
mod memory;
mod reduce;
mod rings;
mod rooted;
mod trees;

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

pub use all_reduce::{all_reduce_doubling, all_reduce_hierarchical, all_reduce_ring};
pub use all_to_all::{all_to_all, all_to_all_on_rails};
pub use barrier::barrier;
pub use broadcast::{broadcast_chain, broadcast_tree};
pub use chunks::Chunks;
pub use element::{DataType, Reduction};
pub use float8::{E4m3, E5m2};
pub use gather::{all_gather_ring, reduce_scatter_ring};
pub use hybrid::{Channel, Windows};
pub use kind::{Collective, Content, Element, Layout, Selection};
pub use memory::{Deadlock, run};
pub use reduce::{reduce_chain, reduce_tree};
pub use rings::rings_over_servers;
pub use rooted::{gather_direct, scatter_direct, shift};
pub use trees::{
    all_reduce_double_tree, all_reduce_double_tree_in, all_reduce_double_tree_over,
    all_reduce_trees,
};

/// The next operation of a rank. Chunks are numbered as in [`Schedule::chunk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends a message of some chunks.
    Send {
        /// The receiving rank.
        to: usize,
        /// The chunks to send.
        chunks: Chunks,
    },
    /// Waits for the next message from a peer and overwrites as many chunks with it as it has.
    Receive {
        /// The sending rank.
        from: usize,
        /// The chunks to overwrite.
        chunks: Chunks,
    },
    /// Waits for the next message from a peer, of one chunk, and reduces it into a chunk.
    Reduce {
        /// The sending rank.
        from: usize,
        /// The chunk that receives the reduction.
        chunk: usize,
    },
    /// Copies a chunk over another.
    Copy {
        /// The source chunk.
        chunk: usize,
        /// The chunk to overwrite.
        to: usize,
    },
}

impl Step {
    /// Returns the sending of one chunk.
    pub const fn send(to: usize, chunk: usize) -> Self {
        Self::Send { to, chunks: Chunks::one(chunk) }
    }

    /// Returns the receiving of one chunk.
    pub const fn receive(from: usize, chunk: usize) -> Self {
        Self::Receive { from, chunks: Chunks::one(chunk) }
    }
}

/// The steps of every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// `steps[rank]`, in order.
    pub steps: Vec<Vec<Step>>,
    /// Number of chunks of a rank's buffer.
    pub chunks: usize,
    /// Maximum number of chunks of a message.
    pub chunks_per_message: usize,
}

impl Schedule {
    fn new(ranks: usize, chunks: usize) -> Self {
        Self { steps: vec![Vec::new(); ranks], chunks, chunks_per_message: 1 }
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> usize {
        self.steps.len()
    }

    /// Returns the range of a chunk in a buffer of `elements` elements. Lengths differ by at most one; the
    /// first chunks are the longer ones.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn chunk(&self, chunk: usize, elements: usize) -> Range<usize> {
        assert!(chunk < self.chunks, "chunk {chunk} of {}", self.chunks);
        let (each, longer) = (elements / self.chunks, elements % self.chunks);
        let start = chunk * each + chunk.min(longer);
        start..start + each + usize::from(chunk < longer)
    }

    /// Returns the number of messages that a rank sends.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn sends(&self, rank: usize) -> usize {
        self.steps[rank].iter().filter(|step| matches!(step, Step::Send { .. })).count()
    }
}

/// Checks that an order names every rank once.
///
/// # Panics
/// If it does not.
fn check_order(order: &[usize]) {
    let mut seen = vec![false; order.len()];
    for &rank in order {
        let fresh = seen.get_mut(rank).is_some_and(|seen| !core::mem::replace(seen, true));
        assert!(fresh, "an order names every rank below {} once", order.len());
    }
}

#[cfg(test)]
mod tests;
