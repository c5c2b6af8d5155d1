//! The faults of a router's answer.

use weft_route::Prefix;
use weft_route::installed::PrefixError;

use crate::TreeFault;

/// The reason that an answer of a router cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerFault {
    /// The answer is too short.
    #[error("the answer ends before this part")]
    Ends,
    /// A part is not the JSON that iproute2 prints.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A sysctl is no number.
    #[error("{0:?} is no number")]
    NoNumber(String),
    /// The destination of a route is no prefix.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// A route is of a kind that is not supported.
    #[error("{to}: kind {kind:?}")]
    RouteKind {
        /// The destination.
        to: String,
        /// The kind, as iproute2 prints it.
        kind: String,
    },
    /// A route names a nexthop object that is not listed.
    #[error("nexthop object {0} is gone")]
    NoObject(u32),
    /// A group names a nexthop object that is not listed or has no interface.
    #[error("nexthop object {0} is gone or leads nowhere")]
    NoMember(u32),
    /// A bucket of a resilient group has an object that is not in the group, or buckets are missing.
    #[error("bucket {bucket} of nexthop group {group} has object {object}, which is no member")]
    Bucket {
        /// The index of the bucket.
        bucket: usize,
        /// The group.
        group: u32,
        /// The object.
        object: u32,
    },
    /// A part is no data tree of gNMI's.
    #[error(transparent)]
    Tree(#[from] TreeFault),
    /// A value that is needed is not in the answer.
    #[error("it has no {0}")]
    Missing(String),
    /// A route uses a port that is not configured beside others that are.
    #[error("{to} leads by {hop}, which is no [[router.port]]: add it")]
    UnknownPort {
        /// The destination.
        to: Prefix,
        /// The port, or the neighbour's address if its port is not known.
        hop: String,
    },
    /// A command failed; its standard error.
    #[error("{0}")]
    Command(String),
}

/// A part of an answer that cannot be parsed.
#[derive(Debug)]
pub(crate) struct UnreadablePart {
    pub(crate) what: &'static str,
    pub(crate) fault: AnswerFault,
}
