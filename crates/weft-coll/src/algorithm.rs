//! Which schedule a call is performed by, and into how many blocks its buffer is cut.

use alloc::vec::Vec;

use weft_plan::collective::{
    Schedule, all_gather_ring, all_reduce_doubling, all_reduce_ring, all_to_all, barrier,
    broadcast_chain, broadcast_tree, gather_direct, reduce_chain, reduce_scatter_ring, reduce_tree,
    scatter_direct, shift,
};

use crate::{Call, Collective};

/// Buffers up to so many bytes go by the algorithm with the fewest rounds; longer ones by that which moves the fewest
/// bytes. Where both take as long depends on the network; here a round is worth about as long as 32 KiB take.
pub(crate) const SMALL: usize = 32 << 10;

/// What a schedule depends on, besides the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    collective: Collective,
    root: usize,
    small: bool,
}

impl Key {
    pub(crate) const fn of(call: &Call) -> Self {
        let root = if call.collective.has_root() { call.root } else { 0 };
        Self { collective: call.collective, root, small: call.bytes() <= SMALL }
    }

    /// The schedule, for ranks that follow each other in this order.
    pub(crate) fn schedule(self, order: &[usize]) -> Schedule {
        let ranks = order.len();
        match self.collective {
            Collective::AllReduce if self.small => all_reduce_doubling(ranks),
            Collective::AllReduce => all_reduce_ring(order),
            Collective::AllGather => all_gather_ring(order),
            Collective::ReduceScatter => reduce_scatter_ring(order),
            Collective::Broadcast if self.small => broadcast_tree(&from_root(order, self.root)),
            Collective::Broadcast => broadcast_chain(&from_root(order, self.root), 1),
            Collective::Reduce if self.small => reduce_tree(&from_root(order, self.root)),
            Collective::Reduce => reduce_chain(&from_root(order, self.root)),
            Collective::AllToAll => all_to_all(ranks),
            Collective::Gather => gather_direct(ranks, self.root),
            Collective::Scatter => scatter_direct(ranks, self.root),
            // To the next by number, whatever order rings have.
            Collective::SendReceive => shift(&(0..ranks).collect::<Vec<_>>()),
            Collective::Barrier => barrier(ranks),
        }
    }
}

/// The order, beginning with the root.
fn from_root(order: &[usize], root: usize) -> Vec<usize> {
    let mut order = order.to_vec();
    let place = order.iter().position(|&rank| rank == root).expect("the root is a rank");
    order.rotate_left(place);
    order
}

/// Blocks of a call: as few as let no message be longer than `piece` bytes.
pub(crate) fn blocks(call: &Call, schedule: &Schedule, piece: usize) -> u32 {
    let elements = (piece / call.data_type.size()).max(1);
    let longest = call.elements.div_ceil(schedule.chunks.max(1));
    u32::try_from(longest.div_ceil(elements).max(1)).unwrap_or(u32::MAX)
}
