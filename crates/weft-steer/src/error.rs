//! The errors of reading, watching and steering routers.

use std::io;
use std::path::PathBuf;

use crate::{AnswerFault, ConfigError, Refusal};

/// An error of work with real routers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SteerError {
    /// A configuration file that cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// An invalid configuration.
    #[error("{}: {reason}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The fault, with its line if known.
        reason: ConfigError,
    },
    /// A command that failed at a router.
    #[error("router {router:?}: `{command}` failed: {stderr}")]
    Command {
        /// The router.
        router: String,
        /// The command.
        command: String,
        /// The text on its standard error.
        stderr: String,
    },
    /// An answer of a router that cannot be parsed.
    #[error("router {router:?}: cannot parse {what}: {reason}")]
    Answer {
        /// The router.
        router: String,
        /// The part of the answer.
        what: &'static str,
        /// The place and reason of the failure.
        reason: AnswerFault,
    },
    /// A move that the router's tables do not permit.
    #[error("router {router:?}: {reason}")]
    Refused {
        /// The router.
        router: String,
        /// The reason and the remedy.
        reason: Refusal,
    },
    /// Another controller holds the lease.
    #[error("{holder} steers this fabric (lease {}); stop it, or wait until its lease ends", path.display())]
    Held {
        /// The holder of the lease.
        holder: String,
        /// The lease's file.
        path: PathBuf,
    },
    /// An error of the operating system.
    #[error("cannot {what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The caller's function that reads the inventory failed.
    #[error(transparent)]
    Inventory(Box<dyn std::error::Error + Send + Sync>),
    /// A configuration names a lab, and the program that uses it does not read labs.
    #[error("`lab = {lab:?}`: this program steers the routers of [[router]] only")]
    UnreadLab {
        /// The lab.
        lab: String,
    },
    /// Tables that do not form a fabric.
    #[error(transparent)]
    Installed(#[from] weft_route::InstalledError),
}

impl SteerError {
    /// Returns a function for `map_err` that adds the failed operation.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
