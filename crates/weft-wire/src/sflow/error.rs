//! The errors of the sFlow parser.

use thiserror::Error;

/// An error in a datagram or in one of its samples. Bytes are untrusted: the caller counts the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum SflowError {
    /// The bytes end within a field or entry.
    #[error("truncated sFlow: {needed} bytes needed where {got} are left")]
    Truncated {
        /// Number of bytes that the next item needs.
        needed: usize,
        /// Number of bytes left.
        got: usize,
    },
    /// The datagram has another version of sFlow, or is not sFlow.
    #[error("sFlow of version {got}; known: 5 (set the agent to version 5)")]
    WrongVersion {
        /// The first word.
        got: u32,
    },
    /// The type of the agent's address is unknown.
    #[error("an sFlow agent's address of type {got}; known: 1 (IPv4), 2 (IPv6)")]
    UnknownAddressType {
        /// The type's number.
        got: u32,
    },
    /// The bytes cannot hold the announced number of entries.
    #[error("sFlow announces {announced} entries in {got} bytes")]
    TooMany {
        /// Number of entries announced.
        announced: u32,
        /// Number of bytes left.
        got: usize,
    },
    /// The sampling rate is zero, so the number of packets that the sample represents is unknown.
    #[error("a flow sample with sampling rate 0")]
    ZeroRate,
}
