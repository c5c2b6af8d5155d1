//! The collectives, with what distinguishes them: the schedule, the layout of a buffer, and the result.

use alloc::vec::Vec;

use super::{
    Schedule, all_gather_ring, all_reduce_doubling, all_to_all, barrier, broadcast_chain,
    broadcast_tree, gather_direct, reduce_chain, reduce_scatter_ring, reduce_tree, scatter_direct,
    shift,
};

weft_units::registry! {
    /// An operation on every rank's buffer. Each works in place; if ranks have their own parts, the buffer
    /// is divided into equal chunks. The names are those of nccl-tests.
    pub enum Collective: "collective" {
        /// All ranks receive the reduction of all buffers.
        AllReduce => "all_reduce";
        /// The buffer has one chunk for each rank; each rank's own chunk is sent to all.
        AllGather => "all_gather";
        /// The buffer has one chunk for each rank, which receives the chunk's reduction. Other chunks hold partial
        /// results afterwards.
        ReduceScatter => "reduce_scatter";
        /// All ranks receive the root's buffer.
        Broadcast => "broadcast";
        /// The root receives the reduction of all buffers. Other ranks' buffers hold partial results afterwards.
        Reduce => "reduce";
        /// The buffer has two chunks for each rank: chunk `d` of the first half is sent to rank `d`, which stores
        /// it in its second half, at the sender's number.
        AllToAll => "alltoall";
        /// The buffer has one chunk for each rank; each rank's own chunk is sent to the root.
        Gather => "gather";
        /// The buffer has one chunk for each rank; each of the root's chunks is sent to the rank of its number.
        Scatter => "scatter";
        /// The buffer has two chunks: the first is sent to the second of the next rank.
        SendReceive => "sendrecv";
        /// No rank finishes before all have made the call. The buffer is empty.
        Barrier => "barrier";
    }
}

/// The equal chunks that a rank's buffer consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One chunk.
    Whole,
    /// A chunk for each rank.
    Shares,
    /// A chunk for each rank to send, and behind them one for each rank to receive.
    SharesTwice,
    /// A chunk to send and a chunk to receive.
    Twice,
    /// Nothing.
    Empty,
}

/// The content of an element after a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// An element that a rank had before.
    Of {
        /// The rank.
        rank: usize,
        /// The element's index in the rank's buffer.
        at: usize,
    },
    /// The reduction over all ranks of the element with the same index.
    Reduced,
    /// A partial result.
    Unspecified,
}

/// An element of a rank's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// The element's index.
    pub at: usize,
    /// The rank.
    pub rank: usize,
    /// Number of ranks.
    pub ranks: usize,
    /// The root's rank, for collectives that have a root.
    pub root: usize,
    /// Number of elements of a chunk.
    pub chunk: usize,
}

/// The properties of a call that select its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection<'a> {
    /// The order of the ranks in rings and trees.
    pub order: &'a [usize],
    /// The root's rank, for collectives that have a root.
    pub root: usize,
    /// `true` selects the schedule with the fewest rounds, `false` the one that moves the fewest bytes.
    pub small: bool,
}

impl Selection<'_> {
    /// Returns the order, rotated to start with the root.
    fn rooted(&self) -> Vec<usize> {
        let mut order = self.order.to_vec();
        let place = order.iter().position(|&rank| rank == self.root);
        order.rotate_left(place.expect("the root is a rank"));
        order
    }
}

impl Collective {
    /// Returns `true` if the collective reduces elements.
    pub const fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }

    /// Returns `true` if the collective has a root.
    pub const fn has_root(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter)
    }

    /// Returns the layout of a rank's buffer.
    pub const fn layout(self) -> Layout {
        match self {
            Self::AllReduce | Self::Broadcast | Self::Reduce => Layout::Whole,
            Self::AllGather | Self::ReduceScatter | Self::Gather | Self::Scatter => Layout::Shares,
            Self::AllToAll => Layout::SharesTwice,
            Self::SendReceive => Layout::Twice,
            Self::Barrier => Layout::Empty,
        }
    }

    /// Returns the number of equal chunks that the caller's buffer consists of.
    pub const fn parts(self, ranks: usize) -> usize {
        match self.layout() {
            Layout::Whole | Layout::Empty => 1,
            Layout::Shares => ranks,
            Layout::SharesTwice => 2 * ranks,
            Layout::Twice => 2,
        }
    }

    /// Returns the number of bytes that a link carries for each byte of the collective's size, as nccl-tests counts
    /// (its `doc/PERFORMANCE.md`).
    #[expect(clippy::cast_precision_loss, reason = "a number of ranks")]
    pub fn bus_factor(self, ranks: usize) -> f64 {
        let ranks = ranks.max(1) as f64;
        match self {
            Self::AllReduce => 2.0 * (ranks - 1.0) / ranks,
            Self::AllGather
            | Self::ReduceScatter
            | Self::AllToAll
            | Self::Gather
            | Self::Scatter => (ranks - 1.0) / ranks,
            Self::Broadcast | Self::Reduce | Self::SendReceive => 1.0,
            Self::Barrier => 0.0,
        }
    }

    /// Returns the content of an element after the collective.
    pub fn content(self, element: Element) -> Content {
        let Element { at, rank, ranks, root, chunk } = element;
        let of = |rank, at| Content::Of { rank, at };
        match self {
            Self::AllReduce => Content::Reduced,
            Self::AllGather => of(at / chunk, at),
            Self::ReduceScatter if at / chunk == rank => Content::Reduced,
            Self::Reduce if rank == root => Content::Reduced,
            Self::ReduceScatter | Self::Reduce => Content::Unspecified,
            Self::Broadcast => of(root, at),
            Self::AllToAll if at >= ranks * chunk => {
                of(at / chunk - ranks, rank * chunk + at % chunk)
            }
            Self::Gather if rank == root => of(at / chunk, at),
            Self::Scatter if at / chunk == rank => of(root, at),
            Self::SendReceive if at >= chunk => of((rank + ranks - 1) % ranks, at - chunk),
            Self::AllToAll | Self::Gather | Self::Scatter | Self::SendReceive | Self::Barrier => {
                of(rank, at)
            }
        }
    }

    /// Returns the schedule. `all_reduce` returns the schedule of an all-reduce of a long buffer, for which there are
    /// several algorithms.
    ///
    /// # Panics
    /// If the root of a collective that has one is no rank, or `order` does not name every rank once and the schedule
    /// depends on it.
    pub fn schedule(
        self,
        selection: Selection<'_>,
        all_reduce: impl FnOnce(&[usize]) -> Schedule,
    ) -> Schedule {
        let Selection { order, root, small } = selection;
        let ranks = order.len();
        match self {
            Self::AllReduce if small => all_reduce_doubling(ranks),
            Self::AllReduce => all_reduce(order),
            Self::AllGather => all_gather_ring(order),
            Self::ReduceScatter => reduce_scatter_ring(order),
            Self::Broadcast if small => broadcast_tree(&selection.rooted()),
            Self::Broadcast => broadcast_chain(&selection.rooted(), 1),
            Self::Reduce if small => reduce_tree(&selection.rooted()),
            Self::Reduce => reduce_chain(&selection.rooted()),
            Self::AllToAll => all_to_all(ranks),
            Self::Gather => gather_direct(ranks, root),
            Self::Scatter => scatter_direct(ranks, root),
            // A rank sends to the next number, whatever the order of rings is.
            Self::SendReceive => shift(&(0..ranks).collect::<Vec<_>>()),
            Self::Barrier => barrier(ranks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_those_of_nccl_tests() {
        for (collective, want) in [
            (Collective::AllReduce, 1.5),
            (Collective::AllGather, 0.75),
            (Collective::ReduceScatter, 0.75),
            (Collective::AllToAll, 0.75),
            (Collective::Broadcast, 1.0),
            (Collective::Reduce, 1.0),
            (Collective::SendReceive, 1.0),
        ] {
            assert!((collective.bus_factor(4) - want).abs() < 1e-12, "{collective}");
        }
        assert!(Collective::AllReduce.bus_factor(1).abs() < 1e-12);
    }
}
