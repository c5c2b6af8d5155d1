//! Why a rank is in no group, or in none any more.

use std::io;
use std::net::SocketAddr;

use weft_coll::{CallError, Error};
use weft_guard::TokenError;
use weft_xrdma::NodeError;

/// Why a rank is in no group, or in none any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommError {
    /// Its number is not one of the group's.
    #[error("rank {rank} of {ranks}: ranks are numbered from 0")]
    Rank {
        /// Its number.
        rank: usize,
        /// Ranks of the group.
        ranks: usize,
    },
    /// An option has a value that cannot be.
    #[error("{0}")]
    Options(String),
    /// The job's token cannot be had.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Other hosts reach the address, and the job has no token.
    #[error(
        "the job has no token, and other hosts reach {at}: they could join it or end it. Give all ranks one, with \
         {variable}=TOKEN or {variable}_FILE=FILE in their environment (`weft adm token FILE` makes it)"
    )]
    NoToken {
        /// The address at which ranks are to meet.
        at: SocketAddr,
        /// The environment variable.
        variable: &'static str,
    },
    /// The RDMA device, or a channel.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A socket.
    #[error("{doing}: {error}")]
    Socket {
        /// What was tried.
        doing: String,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// Ranks did not come to the meeting in time.
    #[error("only {came} of {ranks} ranks came to {at} in time; missing: {missing}")]
    Missing {
        /// Where they were to come.
        at: SocketAddr,
        /// How many came, this one included.
        came: usize,
        /// How many there are.
        ranks: usize,
        /// Who did not.
        missing: String,
    },
    /// Rank 0 refused this one, or another rank.
    #[error("rank 0 at {at} refused: {why}")]
    Refused {
        /// Where it is.
        at: SocketAddr,
        /// Why.
        why: String,
    },
    /// There is no channel to a rank.
    #[error("no channel to rank {rank} at {at}: {why}")]
    Channel {
        /// Which rank.
        rank: usize,
        /// Where it is.
        at: SocketAddr,
        /// Why.
        why: String,
    },
    /// The memory that ranks share.
    #[error("shared memory {path}: {why}")]
    Shared {
        /// Its file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// A call that cannot be.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The group failed.
    #[error(transparent)]
    Group(#[from] Error),
    /// Nothing happened for too long.
    #[error("call {call} was not done in {after}; it waits for {whom}")]
    TimedOut {
        /// Which call.
        call: u64,
        /// How long it took.
        after: weft_units::Duration,
        /// Whom it waits for.
        whom: String,
    },
}

/// An error of a socket, with what was tried.
pub(crate) fn socket<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> CommError {
    let doing = doing.into();
    move |error| CommError::Socket { doing, error: error.into() }
}
