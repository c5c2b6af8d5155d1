//! The failure of a group, and the refusal of a call.

use alloc::string::String;

use crate::{Call, Collective, DataType, Op};

/// The reason for a group's failure. All calls in progress are lost and no more are accepted, because ranks
/// would no longer agree on the calls that completed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank is unreachable.
    #[error("rank {rank} is gone: {why}")]
    Gone {
        /// The unreachable rank.
        rank: usize,
        /// The error of its channel.
        why: String,
    },
    /// A rank left the group in order, but before a call that needs it.
    #[error("rank {rank} has left the group, and call {call} ({what}) needs it")]
    Left {
        /// The rank that left.
        rank: usize,
        /// The call's number, from 0.
        call: u64,
        /// The call.
        what: Call,
    },
    /// Two ranks make different calls under one number.
    #[error(
        "call {call} is not the same at all ranks: rank {rank} requests {ours}, rank {peer} requests {theirs}"
    )]
    Mismatch {
        /// The call's number, from 0.
        call: u64,
        /// This rank.
        rank: usize,
        /// This rank's call.
        ours: Call,
        /// The other rank.
        peer: usize,
        /// The other rank's call.
        theirs: Call,
    },
    /// Another rank failed and sent the reason.
    #[error("rank {by} gave up: {why}")]
    GivenUp {
        /// The rank that failed.
        by: usize,
        /// The reason.
        why: String,
    },
    /// A rank sent an invalid message.
    #[error("rank {rank} broke the protocol: {why}")]
    Protocol {
        /// The sender.
        rank: usize,
        /// The fault.
        why: String,
    },
    /// The owner gave up.
    #[error("{0}")]
    Owner(String),
}

/// The reason why a call is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The root is no rank of the group.
    #[error("root {root}, but the group has {ranks} ranks")]
    Root {
        /// The call's root.
        root: usize,
        /// Number of ranks of the group.
        ranks: usize,
    },
    /// The elements cannot be reduced in this way.
    #[error("{} of {}: floats have no bitwise reductions, and bool has no mean", .op.name(), .data_type.name())]
    Reduction {
        /// The reduction.
        op: Op,
        /// The type of the elements.
        data_type: DataType,
    },
    /// The length of the buffer does not match the call.
    #[error("a buffer of {got} bytes for {elements} elements of {size} bytes")]
    Length {
        /// Length of the buffer in bytes.
        got: usize,
        /// Number of elements of the call.
        elements: usize,
        /// Size of an element in bytes.
        size: usize,
    },
    /// The buffer cannot be divided.
    #[error("{elements} elements cannot be divided into the {parts} equal chunks of {}", .collective.name())]
    Uneven {
        /// Number of elements of the buffer.
        elements: usize,
        /// Number of chunks.
        parts: usize,
        /// The collective.
        collective: Collective,
    },
    /// The group failed earlier and accepts no more calls.
    #[error(transparent)]
    Failed(#[from] Error),
}
