//! The choice of a call's schedule, and the number of blocks of its buffer.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use weft_plan::collective::{
    Collective, Schedule, Selection, all_reduce_double_tree, all_reduce_hierarchical,
    all_reduce_ring,
};

use weft_units::UnknownName;

use crate::Call;

/// The algorithm of all-reduces of long buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// A ring: each rank sends the minimum number of bytes, in `2 (n − 1)` rounds.
    #[default]
    Ring,
    /// Two binary trees, each for half of the buffer: about `2 log2 n` rounds; inner nodes send as many bytes
    /// as in a ring.
    Tree,
    /// A reduce-scatter inside each server, then a ring over servers for each rank's share: only that share
    /// crosses between servers.
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

    fn all_reduce(self, order: &[usize]) -> Schedule {
        match self {
            Self::Ring | Self::ByServer => all_reduce_ring(order),
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

/// The properties of a call that select its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    collective: Collective,
    root: usize,
    small: bool,
}

impl Key {
    pub(crate) const fn of(call: &Call) -> Self {
        let root = if call.collective.has_root() { call.root } else { 0 };
        Self { collective: call.collective, root, small: call.bytes() <= MAX_SMALL_BYTES }
    }

    /// Returns the schedule for ranks in this order.
    pub(crate) fn schedule(self, order: &[usize], algorithm: Algorithm) -> Schedule {
        let selection = Selection { order, root: self.root, small: self.small };
        self.collective.schedule(selection, |order| algorithm.all_reduce(order))
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
    let elements = (max_body / call.data_type.size()).max(1);
    let longest = call.elements.div_ceil(schedule.chunks.max(1));
    let blocks = u32::try_from(longest.div_ceil(elements).max(1)).unwrap_or(u32::MAX);
    if blocks <= max_in_flight {
        blocks
    } else {
        blocks.checked_next_multiple_of(max_in_flight).unwrap_or(blocks)
    }
}
