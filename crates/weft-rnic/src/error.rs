//! Why a command was refused; the device's state is as before.

use crate::{Owner, State};

/// What kind of object a number should name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// A context.
    Context,
    /// A protection domain.
    ProtectionDomain,
    /// A memory region.
    MemoryRegion,
    /// A memory window.
    MemoryWindow,
    /// A completion queue.
    CompletionQueue,
    /// A shared receive queue.
    SharedReceiveQueue,
    /// A queue pair.
    QueuePair,
}

/// Why a command was refused. Verbs return `EINVAL` unless a variant says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// The number names no such object, or one of another context.
    #[error("no such {0:?} in this context")]
    Unknown(Object),
    /// `ENOMEM`: the device holds as many as it may.
    #[error("{limit} of {object:?} is this device's limit")]
    TooMany {
        /// Of what.
        object: Object,
        /// The limit.
        limit: u32,
    },
    /// Above what the device, or the queue as it was created, can do.
    #[error("{field} is {got}, at most {limit} is possible")]
    OverLimit {
        /// Which attribute.
        field: &'static str,
        /// What was asked for.
        got: u64,
        /// What is possible.
        limit: u64,
    },
    /// A value that makes no sense, or not here.
    #[error("{0}")]
    Invalid(&'static str),
    /// `EPERM`: a virtual device reaches the memory of its guest and its GPUs only.
    #[error("memory of {0:?} is not this virtual device's")]
    ForeignMemory(Owner),
    /// `EBUSY`: other objects still use it.
    #[error("{users} others still use it")]
    Busy {
        /// How many.
        users: u32,
    },
    /// `ENOMEM`: no room for another work request.
    #[error("{limit} work requests wait, which is this queue's limit")]
    QueueFull {
        /// The limit.
        limit: u32,
    },
    /// The queue pair does not take that in its state.
    #[error("not in state {0:?}")]
    WrongState(State),
    /// IBTA knows no such transition.
    #[error("there is no transition from {from:?} to {to:?}")]
    NoTransition {
        /// The state it is in.
        from: State,
        /// The state asked for.
        to: State,
    },
    /// Attributes that the transition needs are missing (`enum ibv_qp_attr_mask`).
    #[error("the transition also needs attributes {missing:#x}")]
    MissingAttributes {
        /// Those missing.
        missing: u32,
    },
    /// Attributes that the transition does not take (`enum ibv_qp_attr_mask`).
    #[error("the transition does not take attributes {extra:#x}")]
    ExtraAttributes {
        /// Those too many.
        extra: u32,
    },
}
