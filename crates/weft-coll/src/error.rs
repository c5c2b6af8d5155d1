//! Why a group cannot go on.

use alloc::string::String;

use crate::Call;

/// Why a group cannot go on. What was under way is lost, and no more calls are taken: ranks would not agree any more
/// what was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank cannot be reached any more.
    #[error("rank {rank} is gone: {why}")]
    Gone {
        /// Which.
        rank: usize,
        /// What its channel said.
        why: String,
    },
    /// A rank left the group in order, but not after the same calls.
    #[error("rank {rank} has left the group, and call {call} ({what}) needs it")]
    Left {
        /// Which.
        rank: usize,
        /// The call's number, from 0.
        call: u64,
        /// What it is.
        what: Call,
    },
    /// Two ranks ask for different things.
    #[error(
        "call {call} is not the same at all ranks: rank {rank} asks for {ours}, rank {peer} for {theirs}"
    )]
    Mismatch {
        /// The call's number, from 0.
        call: u64,
        /// This rank.
        rank: usize,
        /// What it asks for.
        ours: Call,
        /// The other.
        peer: usize,
        /// What that one asks for.
        theirs: Call,
    },
    /// Another rank cannot go on, and said so.
    #[error("rank {by} gave up: {why}")]
    GivenUp {
        /// Which.
        by: usize,
        /// Why it cannot go on.
        why: String,
    },
    /// A rank sent what cannot be.
    #[error("rank {rank} broke the protocol: {why}")]
    Protocol {
        /// Which.
        rank: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The owner gave up.
    #[error("{0}")]
    Owner(String),
}
