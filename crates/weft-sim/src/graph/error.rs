//! The errors of a graph.

use weft_units::ByteCount;

/// The reason why nodes do not form a graph that can be executed. Nodes have the numbers of their file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The graph does not fit in memory.
    #[error(
        "the graph needs about {need} of memory, and {limit} may be used; take fewer ranks or iterations"
    )]
    Memory {
        /// The memory that the whole needs, at least.
        need: ByteCount,
        /// The memory that may be used.
        limit: ByteCount,
    },
    /// There are more nodes than a graph can have.
    #[error("there are more than {max} nodes; take fewer ranks or iterations")]
    TooManyNodes {
        /// The maximum.
        max: u32,
    },
    /// A rank that does not exist.
    #[error("rank {got} does not exist; ranks are 0 to {}", ranks.saturating_sub(1))]
    NoSuchRank {
        /// The rank.
        got: u64,
        /// Number of ranks.
        ranks: u32,
    },
    /// A group without ranks, with too many, or with a rank twice.
    #[error("a group has {count} ranks ({group}), expected 1 to {max} different ones")]
    Group {
        /// Number of ranks.
        count: usize,
        /// The ranks.
        group: String,
        /// The maximum number.
        max: usize,
    },
    /// A rank that takes part in a collective of a group without being in it.
    #[error("rank {rank} is not in the group of its collective, which has ranks {group}")]
    NotInGroup {
        /// The rank.
        rank: u32,
        /// The group's ranks.
        group: String,
    },
    /// Ranks of a group take part in different collectives.
    #[error(
        "operation {number} of the group of ranks {group} is {got} on rank {rank}, and {expected} on others"
    )]
    Different {
        /// The group's ranks.
        group: String,
        /// The number of the operation in the group, counting from one.
        number: usize,
        /// The rank that differs.
        rank: u32,
        /// The rank's operation.
        got: String,
        /// The other ranks' operation.
        expected: String,
    },
    /// A node that would wait for ever.
    #[error("rank {rank}, node {label}: it would wait for ever: {reason}")]
    Stuck {
        /// The rank.
        rank: u32,
        /// The node's number in its file.
        label: u32,
        /// The reason.
        reason: String,
    },
}
