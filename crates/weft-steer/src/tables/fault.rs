//! The faults of a router's answer.

use weft_route::installed::PrefixError;

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
