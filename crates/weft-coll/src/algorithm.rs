//! The choice of a call's schedule, and the number of blocks of its buffer.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use weft_plan::collective::{
    Collective, Schedule, Selection, all_reduce_double_tree_in, all_reduce_hierarchical,
    all_reduce_ring, all_to_all_on_rails, rings_over_servers,
};

use weft_units::UnknownName;

use crate::Call;

/// The algorithm of all-reduces of long buffers; `Hierarchical` also is one of short all-to-alls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// A ring: each rank sends the minimum number of bytes, in `2 (n − 1)` rounds. Blocks take turns on as many rings as a
    /// server has ranks, each of which crosses between servers on another rail.
    #[default]
    Ring,
    /// Two binary trees, each for half of the buffer: about `2 log2 n` rounds; inner nodes send as many bytes
    /// as in a ring. Each tree has one edge between servers for each server but the first, and one between blocks of the
    /// fabric for each block but the first.
    Tree,
    /// A reduce-scatter inside each server, then a ring over servers for each rank's share: only that share
    /// crosses between servers. A short all-to-all likewise first passes each chunk to the rank of its own server from
    /// which it crosses, so that few messages do.
    Hierarchical {
        /// Number of ranks of a server; they are adjacent in the order of rings.
        local: usize,
    },
    /// `Hierarchical` with the servers that the group's owner finds; a ring until the owner sets that
    /// ([`Group::set_algorithm`](crate::Group::set_algorithm)).
    ByServer,
}

impl Algorithm {
    const NAMES: &'static [&'static str] = &["ring", "tree", "hierarchical", "hierarchical:RANKS"];

    /// Returns `true` if a group of `ranks` ranks can use the algorithm.
    pub const fn fits(self, ranks: usize) -> bool {
        match self {
            Self::Ring | Self::Tree | Self::ByServer => true,
            Self::Hierarchical { local } => local > 0 && ranks.is_multiple_of(local),
        }
    }

    /// Returns the schedule of an all-reduce of a long buffer. `order` is one of the blocks' ranks.
    fn all_reduce(self, order: &[usize], blocks: &[Vec<Vec<usize>>]) -> Schedule {
        match self {
            Self::Ring | Self::ByServer => all_reduce_ring(order),
            Self::Tree => all_reduce_double_tree_in(blocks, 1),
            Self::Hierarchical { local } => all_reduce_hierarchical(&divided(order, local)),
        }
    }
}

/// Divides an order into servers of `local` ranks.
fn divided(order: &[usize], local: usize) -> Vec<Vec<usize>> {
    order.chunks(local).map(<[usize]>::to_vec).collect()
}

impl fmt::Display for Algorithm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ring => out.write_str("ring"),
            Self::Tree => out.write_str("tree"),
            Self::Hierarchical { local } => write!(out, "hierarchical:{local}"),
            Self::ByServer => out.write_str("hierarchical"),
        }
    }
}

/// The error for a text that is no algorithm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AlgorithmError {
    /// The number of a server's ranks is zero or no number.
    #[error("{0:?} is no number of a server's ranks")]
    Ranks(String),
    /// There is no algorithm of this name.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
}

impl FromStr for Algorithm {
    type Err = AlgorithmError;

    fn from_str(text: &str) -> Result<Self, AlgorithmError> {
        match (text, text.strip_prefix("hierarchical:")) {
            ("ring", _) => Ok(Self::Ring),
            ("tree", _) => Ok(Self::Tree),
            ("hierarchical", _) => Ok(Self::ByServer),
            (_, Some(local)) => match local.parse() {
                Ok(local) if local > 0 => Ok(Self::Hierarchical { local }),
                _ => Err(AlgorithmError::Ranks(local.into())),
            },
            _ => Err(UnknownName::new("algorithm", text, Self::NAMES).into()),
        }
    }
}

/// Maximum length in bytes of a buffer that uses the algorithm with the fewest rounds; longer ones use the algorithm
/// that moves the fewest bytes. The break-even point depends on the network; this value equates a round with
/// the transfer of 32 KiB.
pub(crate) const MAX_SMALL_BYTES: usize = 32 << 10;

/// Maximum length in bytes of a chunk of an all-to-all that goes by rails. Longer ones go directly: they fill messages of
/// their own, and would be copied twice.
const MAX_RELAYED_BYTES: usize = 4 << 10;

/// The properties of a call that select its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    collective: Collective,
    root: usize,
    small: bool,
}

impl Key {
    /// Returns the key of a call of `ranks` ranks whose messages have at most `max_body` bytes.
    pub(crate) fn of(call: &Call, ranks: usize, max_body: usize) -> Self {
        let root = if call.collective.has_root() { call.root } else { 0 };
        let small = match call.collective {
            // A message has at least an element of each rank.
            Collective::AllToAll => {
                call.bytes() <= call.collective.parts(ranks) * MAX_RELAYED_BYTES
                    && ranks * call.data_type.size() <= max_body
            }
            _ => call.bytes() <= MAX_SMALL_BYTES,
        };
        Self { collective: call.collective, root, small }
    }

    /// Returns the schedules for these servers, which are also those of the fabric's blocks. Blocks of the buffer use them in
    /// turn.
    pub(crate) fn schedules(
        self,
        servers: &[Vec<usize>],
        blocks: &[Vec<Vec<usize>>],
        algorithm: Algorithm,
    ) -> Vec<Schedule> {
        let Self { collective, root, small } = self;
        let order = servers.concat();
        let schedule = |order: &[usize]| {
            let selection = Selection { order, root, small };
            collective.schedule(selection, |order| algorithm.all_reduce(order, blocks))
        };
        match (collective, algorithm) {
            (Collective::AllToAll, Algorithm::Hierarchical { local })
                if small && (2..order.len()).contains(&local) =>
            {
                [all_to_all_on_rails(&divided(&order, local))].into()
            }
            (Collective::AllReduce, Algorithm::Ring | Algorithm::ByServer) if small => {
                [schedule(&order)].into()
            }
            (Collective::AllReduce, Algorithm::Ring | Algorithm::ByServer)
            | (Collective::AllGather | Collective::ReduceScatter, _) => {
                rings_over_servers(servers).iter().map(|order| schedule(order)).collect()
            }
            _ => [schedule(&order)].into(),
        }
    }
}

/// Returns the maximum number of messages of a block from one rank to another: those of an all-reduce in a ring.
pub(crate) const fn max_messages(ranks: usize) -> usize {
    2 * ranks.saturating_sub(1)
}

/// Returns the number of blocks of a call: the fewest such that no message body exceeds `max_body` bytes. A number
/// above `max_in_flight` is rounded up to a multiple of it: blocks that start together end together, and a few
/// remaining ones would perform their steps alone, while links are idle.
pub(crate) fn blocks(call: &Call, schedule: &Schedule, max_body: usize, max_in_flight: u32) -> u32 {
    let elements = (max_body / call.data_type.size() / schedule.chunks_per_message).max(1);
    let longest = call.elements.div_ceil(schedule.chunks.max(1));
    let blocks = u32::try_from(longest.div_ceil(elements).max(1)).unwrap_or(u32::MAX);
    if blocks <= max_in_flight {
        blocks
    } else {
        blocks.checked_next_multiple_of(max_in_flight).unwrap_or(blocks)
    }
}
