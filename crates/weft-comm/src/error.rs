//! The errors of joining a group or of being in it.

use std::io;
use std::net::SocketAddr;

use weft_coll::{CallError, Error};
use weft_guard::TokenError;
use weft_xrdma::NodeError;

/// The errors of joining a group or of being in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommError {
    /// The rank's number is not one of the group's.
    #[error("rank {rank} of {ranks}: ranks are numbered from 0")]
    Rank {
        /// The number.
        rank: usize,
        /// Number of ranks of the group.
        ranks: usize,
    },
    /// An option has an invalid value.
    #[error("{0}")]
    Options(String),
    /// The job's token cannot be read.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Other hosts can reach the address, and the job has no token.
    #[error(
        "the job has no token, and other hosts reach {at}: they could join it or end it. Give all ranks one, with \
         {variable}=TOKEN or {variable}_FILE=FILE in their environment (`weft adm token FILE` makes it)"
    )]
    NoToken {
        /// The address of the meeting.
        at: SocketAddr,
        /// The environment variable.
        variable: &'static str,
    },
    /// The RDMA device or a channel failed.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A socket failed.
    #[error("{doing}: {error}")]
    Socket {
        /// The operation.
        doing: String,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
    /// Ranks did not join in time.
    #[error("only {came} of {ranks} ranks came to {at} in time; missing: {missing}")]
    Missing {
        /// The address of the meeting.
        at: SocketAddr,
        /// Number of ranks that joined, this one included.
        came: usize,
        /// Number of ranks of the group.
        ranks: usize,
        /// The missing ranks.
        missing: String,
    },
    /// Rank 0 refused this rank or another one.
    #[error("rank 0 at {at} refused: {why}")]
    Refused {
        /// The address of rank 0.
        at: SocketAddr,
        /// The reason.
        why: AnswerError,
    },
    /// There is no channel to a rank.
    #[error("no channel to rank {rank} at {at}: {why}")]
    Channel {
        /// The rank.
        rank: usize,
        /// Its address.
        at: SocketAddr,
        /// The reason.
        why: String,
    },
    /// The shared memory failed.
    #[error("shared memory {path}: {why}")]
    Shared {
        /// The file.
        path: String,
        /// The error.
        why: SharedError,
    },
    /// Two ranks do not share memory, and the option `channels` needs it of all.
    #[error(
        "channels={channels} is for ranks of one server, and ranks {} and {} cannot map each other's memory: they are \
         on two servers, or differ in their /dev/shm, user or option `server`. channels=auto uses RDMA between them",
        .ranks[0], .ranks[1]
    )]
    NotShared {
        /// The option.
        channels: &'static str,
        /// The two ranks.
        ranks: [usize; 2],
    },
    /// The call is invalid.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The group failed.
    #[error(transparent)]
    Group(#[from] Error),
    /// The route controller did not answer, or refused.
    #[error("the route controller at {at} {why}")]
    Controller {
        /// Its address.
        at: String,
        /// The reason.
        #[source]
        why: ControllerError,
    },
    /// The controller is required and the group has no plan.
    #[error("the controller is required, and the group's ports are not planned: {why}")]
    NoPlan {
        /// The reason.
        why: String,
    },
    /// No call completed in time.
    #[error("call {call} was not done in {after}; it waits for {whom}")]
    TimedOut {
        /// The call.
        call: u64,
        /// The time waited.
        after: weft_units::Duration,
        /// The ranks that it waits for.
        whom: String,
    },
}

/// The reason that rank 0's answer has no addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// There is no answer.
    #[error("it closed the connection")]
    Closed,
    /// The answer is not one of rank 0 of a group.
    #[error("it is no rank 0 and says {0:?}")]
    Foreign(String),
    /// Rank 0 gave a reason.
    #[error("{0}")]
    Refused(String),
    /// The answer cannot be parsed.
    #[error("its answer {0:?} cannot be read")]
    Malformed(String),
}

/// The errors of a request to a controller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// The controller is not reached.
    #[error(
        "cannot be reached ({0}): is `weft route serve` running there, with --page and --token-file?"
    )]
    Unreachable(#[source] io::Error),
    /// The controller refuses the request.
    #[error("refuses ({status}): {why}")]
    Refused {
        /// The status of the response.
        status: u16,
        /// Its text.
        why: String,
    },
    /// The response is not a controller's.
    #[error("is no controller of `weft route serve`: {0}")]
    Malformed(String),
}

impl ControllerError {
    /// Returns the error with the controller's address.
    pub(crate) fn of(self, at: &str) -> CommError {
        CommError::Controller { at: at.to_owned(), why: self }
    }
}

/// The errors of the memory that ranks of one server share.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SharedError {
    /// The file cannot be made or mapped.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// There is not enough memory.
    #[error(
        "{error}, {bytes} bytes: is /dev/shm large enough (in a container: --shm-size)? A smaller piece needs less"
    )]
    NoMemory {
        /// Length of the file in bytes.
        bytes: u64,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
    /// The rank's file cannot be opened.
    #[error("{0}: is its rank on this server, with the same /dev/shm?")]
    NotFound(#[source] io::Error),
    /// The file is not one that this user's job made.
    #[error(
        "it belongs to user {owner} or is of another kind: ranks that share memory run as one user"
    )]
    Foreign {
        /// The owner's user ID.
        owner: u32,
    },
    /// The file does not have the rank's number.
    #[error("it is not the memory of this job's rank")]
    OtherContent,
}

/// Returns the names of ranks: `rank 3`, `ranks 1, 3`, or `nobody`.
pub(crate) fn ranks(all: &[usize]) -> String {
    let list: Vec<String> = all.iter().map(usize::to_string).collect();
    match all {
        [] => "nobody".into(),
        [one] => format!("rank {one}"),
        _ => format!("ranks {}", list.join(", ")),
    }
}

/// Returns an error of a socket operation.
pub(crate) fn socket<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> CommError {
    let doing = doing.into();
    move |error| CommError::Socket { doing, error: error.into() }
}
