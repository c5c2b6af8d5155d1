//! Collectives as schedules: for every rank a list of steps over chunks of its buffer. Who moves bytes is
//! not their matter: an owner performs the steps, over messages, RDMA or memory ([`run`] does the last).
//!
//! A send never waits; a receive waits for what its peer sent first. What one rank sends another
//! arrives in order, so steps need no tags.

mod all_reduce;
mod all_to_all;
mod barrier;
mod broadcast;
mod element;
mod gather;
mod hybrid;
mod memory;
mod reduce;
mod rooted;

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

pub use all_reduce::{
    all_reduce_double_tree, all_reduce_doubling, all_reduce_hierarchical, all_reduce_ring,
    all_reduce_trees,
};
pub use all_to_all::all_to_all;
pub use barrier::barrier;
pub use broadcast::{broadcast_chain, broadcast_tree};
pub use element::{DataType, Reduction};
pub use gather::{all_gather_ring, reduce_scatter_ring};
pub use hybrid::{Channel, Windows};
pub use memory::{Stuck, run};
pub use reduce::{reduce_chain, reduce_tree};
pub use rooted::{gather_direct, scatter_direct, shift};

/// What a rank does next. Chunks are numbered as in [`Schedule::chunk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends a chunk.
    Send {
        /// To whom.
        to: usize,
        /// What.
        chunk: usize,
    },
    /// Waits for what a peer sends next, and puts it in place of a chunk.
    Receive {
        /// From whom.
        from: usize,
        /// Where to.
        chunk: usize,
    },
    /// Waits for what a peer sends next, and reduces it into a chunk.
    Reduce {
        /// From whom.
        from: usize,
        /// Into which.
        chunk: usize,
    },
    /// Copies a chunk over another.
    Copy {
        /// Which.
        chunk: usize,
        /// Over which.
        to: usize,
    },
}

/// The steps of every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// `steps[rank]`, in order.
    pub steps: Vec<Vec<Step>>,
    /// Chunks that a rank's buffer is divided into.
    pub chunks: usize,
}

impl Schedule {
    fn new(ranks: usize, chunks: usize) -> Self {
        Self { steps: vec![Vec::new(); ranks], chunks }
    }

    /// How many ranks take part.
    pub fn ranks(&self) -> usize {
        self.steps.len()
    }

    /// Where a chunk lies in a buffer of so many elements: chunks are as equal as they can be, the
    /// first ones longer by one.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn chunk(&self, chunk: usize, elements: usize) -> Range<usize> {
        assert!(chunk < self.chunks, "chunk {chunk} of {}", self.chunks);
        let (each, longer) = (elements / self.chunks, elements % self.chunks);
        let start = chunk * each + chunk.min(longer);
        start..start + each + usize::from(chunk < longer)
    }

    /// Chunks that a rank sends.
    pub fn sends(&self, rank: usize) -> usize {
        self.steps[rank].iter().filter(|step| matches!(step, Step::Send { .. })).count()
    }
}

/// Refuses an order that does not name every rank once.
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
