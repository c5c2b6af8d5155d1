//! Errors of a port, for an operator.

use std::io;

use crate::{FrontEndFault, RingError};

/// An error of a port. The port has counted it and continues as far as it can.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The operating system refused an operation.
    #[error("cannot {what}: {source}")]
    Io {
        /// The operation.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The name is not valid for an interface.
    #[error("{name:?} is no name for an interface: 1 to 15 bytes, no `/`, no space")]
    BadName {
        /// The name.
        name: String,
    },
    /// The tenant violated the rules of a queue, which stops until it is set up again.
    #[error("{port}: the guest's {queue} queue stops: {source}")]
    Ring {
        /// The port's name.
        port: String,
        /// The queue: `sending` or `receiving`.
        queue: &'static str,
        /// The violation.
        source: RingError,
    },
    /// The front end of a vhost-user socket made an invalid request, or disconnected.
    #[error("{port}: the front end {what}")]
    FrontEnd {
        /// The port's name.
        port: String,
        /// The fault of the request, or the end of the connection.
        what: FrontEndFault,
    },
    /// The tenant's memory has changed since the frame was sent.
    #[error("the tenant has taken away the memory of a frame")]
    Unreadable,
    /// A token or slot that is not (or no longer) in use.
    #[error("no such frame at this port")]
    Unknown,
    /// A request for bytes outside a frame.
    #[error("bytes {offset} to {end} of a frame of {len}")]
    OutOfFrame {
        /// Offset of the first byte.
        offset: u32,
        /// Offset after the last byte.
        end: u64,
        /// Bytes of the frame.
        len: u32,
    },
}

impl PortError {
    /// Returns a conversion for `map_err`; `what` names the operation that the system refused.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
