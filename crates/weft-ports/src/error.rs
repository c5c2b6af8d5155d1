//! What an operator should know about a port.

use std::io;

use crate::RingError;

/// Something that went wrong at a port. The port has counted it and goes on as well as it can.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The operating system refused.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// A name that no interface can have.
    #[error("{name:?} is no name for an interface: 1 to 15 bytes, no `/`, no space")]
    BadName {
        /// The name.
        name: String,
    },
    /// The tenant broke the rules of one of its queues, which stops until it is set up again.
    #[error("{port}: the guest's {queue} queue stops: {source}")]
    Ring {
        /// Which port.
        port: String,
        /// Whether it is the one for `sending` or for `receiving`.
        queue: &'static str,
        /// What it did.
        source: RingError,
    },
    /// The program behind a vhost-user socket asked for what cannot be, or went away.
    #[error("{port}: the front end {what}")]
    FrontEnd {
        /// Which port.
        port: String,
        /// What it did.
        what: String,
    },
    /// The tenant's memory is not what it was when the frame was sent.
    #[error("the tenant has taken away the memory of a frame")]
    Unreadable,
    /// A token or slot that names nothing (any more).
    #[error("no such frame at this port")]
    Unknown,
    /// Bytes outside a frame were asked for.
    #[error("bytes {offset} to {end} of a frame of {len}")]
    OutOfFrame {
        /// The first.
        offset: u32,
        /// Behind the last.
        end: u64,
        /// Bytes of the frame.
        len: u32,
    },
}

impl PortError {
    /// For `map_err`: the system refused while doing `what`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
