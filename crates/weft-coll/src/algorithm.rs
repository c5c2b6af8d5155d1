//! Which schedule a call is performed by, and into how many blocks its buffer is cut.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use weft_plan::collective::{
    Schedule, all_gather_ring, all_reduce_double_tree, all_reduce_doubling,
    all_reduce_hierarchical, all_reduce_ring, all_to_all, barrier, broadcast_chain, broadcast_tree,
    gather_direct, reduce_chain, reduce_scatter_ring, reduce_tree, scatter_direct, shift,
};

use weft_units::unknown_name;

use crate::{Call, Collective};

/// How all-reduces of long buffers go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// A ring: each rank sends the fewest bytes there are, in `2 (n − 1)` rounds.
    #[default]
    Ring,
    /// Two binary trees, half of the buffer each: about `2 log2 n` rounds; inner nodes send as much as in a ring.
    Tree,
    /// Inside of servers first, then a ring over servers for each rank's share: between servers goes only a part of the
    /// buffer for each rank of a server.
    Hierarchical {
        /// Ranks of a server; they stand side by side in the order of rings.
        local: usize,
    },
}

impl Algorithm {
    const NAMES: [&str; 3] = ["ring", "tree", "hierarchical:RANKS"];

    /// Whether it can be done by so many ranks.
    pub const fn fits(self, ranks: usize) -> bool {
        match self {
            Self::Ring | Self::Tree => true,
            Self::Hierarchical { local } => local > 0 && ranks.is_multiple_of(local),
        }
    }

    fn all_reduce(self, order: &[usize]) -> Schedule {
        match self {
            Self::Ring => all_reduce_ring(order),
            Self::Tree => all_reduce_double_tree(order, 1),
            Self::Hierarchical { local } => {
                let servers: Vec<Vec<usize>> = order.chunks(local).map(<[usize]>::to_vec).collect();
                all_reduce_hierarchical(&servers)
            }
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ring => out.write_str("ring"),
            Self::Tree => out.write_str("tree"),
            Self::Hierarchical { local } => write!(out, "hierarchical:{local}"),
        }
    }
}

impl FromStr for Algorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("hierarchical:")) {
            ("ring", _) => Ok(Self::Ring),
            ("tree", _) => Ok(Self::Tree),
            (_, Some(local)) => match local.parse() {
                Ok(local) if local > 0 => Ok(Self::Hierarchical { local }),
                _ => Err(format!("{local:?} is no number of a server's ranks")),
            },
            _ => Err(unknown_name("algorithm", text, &Self::NAMES)),
        }
    }
}

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
    pub(crate) fn schedule(self, order: &[usize], algorithm: Algorithm) -> Schedule {
        let ranks = order.len();
        match self.collective {
            Collective::AllReduce if self.small => all_reduce_doubling(ranks),
            Collective::AllReduce => algorithm.all_reduce(order),
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

/// Blocks of a call: as few as let no message be longer than `piece` bytes, and where not all are under way at a time, full
/// rounds of those that are. Blocks that begin together end together, and a few that are left over would take their steps
/// alone, while links wait for each other.
pub(crate) fn blocks(call: &Call, schedule: &Schedule, piece: usize, under_way: u32) -> u32 {
    let elements = (piece / call.data_type.size()).max(1);
    let longest = call.elements.div_ceil(schedule.chunks.max(1));
    let blocks = u32::try_from(longest.div_ceil(elements).max(1)).unwrap_or(u32::MAX);
    if blocks <= under_way {
        blocks
    } else {
        blocks.checked_next_multiple_of(under_way).unwrap_or(blocks)
    }
}
