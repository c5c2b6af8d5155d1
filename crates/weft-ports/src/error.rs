//! What an operator should know about a port.

use std::io;

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
