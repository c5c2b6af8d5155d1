//! The errors of commands. A command that fails leaves the device's state unchanged.

use crate::{Owner, State};

/// The kind of object that a number names.
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

/// The error of a command. Verbs return `EINVAL` unless a variant says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// The number names no such object, or one of another context.
    #[error("no such {0:?} in this context")]
    Unknown(Object),
    /// `ENOMEM`: the device's limit is reached.
    #[error("{limit} of {object:?} is this device's limit")]
    TooMany {
        /// The kind of object.
        object: Object,
        /// The limit.
        limit: u32,
    },
    /// The value is above the limit of the device, or of the queue as it was created.
    #[error("{field} is {got}, at most {limit} is possible")]
    OverLimit {
        /// The attribute's name.
        field: &'static str,
        /// The requested value.
        got: u64,
        /// The largest possible value.
        limit: u64,
    },
    /// The value is invalid, or invalid in this state.
    #[error("{0}")]
    Invalid(&'static str),
    /// `EPERM`: a virtual device may register only memory of its guest and its GPUs.
    #[error("memory of {0:?} is not this virtual device's")]
    ForeignMemory(Owner),
    /// `EBUSY`: other objects use the object.
    #[error("{users} others still use it")]
    Busy {
        /// The number of objects that use it.
        users: u32,
    },
    /// `ENOMEM`: the work queue is full.
    #[error("{limit} work requests wait, which is this queue's limit")]
    QueueFull {
        /// The limit.
        limit: u32,
    },
    /// The queue pair does not allow the command in this state.
    #[error("not in state {0:?}")]
    WrongState(State),
    /// IBTA does not define the transition.
    #[error("there is no transition from {from:?} to {to:?}")]
    NoTransition {
        /// The current state.
        from: State,
        /// The requested state.
        to: State,
    },
    /// Required attributes of the transition are missing (`enum ibv_qp_attr_mask`).
    #[error("the transition also needs attributes {missing:#x}")]
    MissingAttributes {
        /// The missing attributes.
        missing: u32,
    },
    /// The transition does not take these attributes (`enum ibv_qp_attr_mask`).
    #[error("the transition does not take attributes {extra:#x}")]
    ExtraAttributes {
        /// The surplus attributes.
        extra: u32,
    },
}
