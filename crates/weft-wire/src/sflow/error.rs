//! Why bytes are not sFlow.

use thiserror::Error;

/// Why a datagram, or a sample in one, cannot be read. Bytes come from anybody: the caller counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum SflowError {
    /// The bytes end in the middle of something.
    #[error("truncated sFlow: {needed} bytes needed where {got} are left")]
    Truncated {
        /// Bytes needed next.
        needed: usize,
        /// Bytes there.
        got: usize,
    },
    /// Another version of sFlow, or something else altogether.
    #[error("sFlow of version {got}; known: 5 (set the agent to version 5)")]
    WrongVersion {
        /// The first word.
        got: u32,
    },
    /// An agent's address of no known type.
    #[error("an sFlow agent's address of type {got}; known: 1 (IPv4), 2 (IPv6)")]
    UnknownAddressType {
        /// The type's number.
        got: u32,
    },
    /// A count or length that the bytes cannot hold.
    #[error("sFlow announces {announced} entries in {got} bytes")]
    TooMany {
        /// How many there should be.
        announced: u32,
        /// Bytes left for them.
        got: usize,
    },
    /// A sampling rate of zero: it says nothing of how many packets a sample stands for.
    #[error("a flow sample with sampling rate 0")]
    ZeroRate,
}
