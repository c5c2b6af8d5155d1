//! Why routers cannot be read, watched or steered, and what the operator can do about it.

use std::io;
use std::path::PathBuf;

/// Everything that can go wrong with real routers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SteerError {
    /// A configuration that cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A configuration that is none.
    #[error("{}: {reason}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the line where it is known.
        reason: String,
    },
    /// A router that did not do what it was told.
    #[error("router {router:?}: `{command}` failed: {stderr}")]
    Command {
        /// The router.
        router: String,
        /// What was run.
        command: String,
        /// What it wrote to standard error.
        stderr: String,
    },
    /// A router whose answer is not understood.
    #[error("router {router:?}: {what} is not understood: {reason}")]
    Answer {
        /// The router.
        router: String,
        /// What was asked for.
        what: &'static str,
        /// Where it stops making sense.
        reason: String,
    },
    /// A move that the router's tables do not allow.
    #[error("router {router:?}: {reason}")]
    Refused {
        /// The router.
        router: String,
        /// Why, and what would help.
        reason: String,
    },
    /// Another controller steers.
    #[error("{holder} steers this fabric (lease {}); stop it, or wait until its lease ends", path.display())]
    Held {
        /// Who says so.
        holder: String,
        /// The lease's file.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// The lab refused.
    #[error(transparent)]
    Lab(#[from] weft_lab::LabError),
    /// The tables make no fabric.
    #[error(transparent)]
    Installed(#[from] weft_route::InstalledError),
}

impl SteerError {
    /// For `map_err`: the system refused while doing `what`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
