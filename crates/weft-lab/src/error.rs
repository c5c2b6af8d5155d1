//! Why a lab cannot do what was asked, and what the caller can do about it.

use std::io;
use std::path::PathBuf;

/// Everything that can go wrong with a lab.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The process may not create network namespaces.
    #[error("a lab needs root to create network namespaces: run it again with sudo")]
    NeedsRoot,
    /// A program the lab drives is not installed.
    #[error(
        "`{tool}` is not installed: it comes with the Debian package {package} (apt-get install {package})"
    )]
    MissingTool {
        /// The program.
        tool: &'static str,
        /// The Debian package that brings it.
        package: &'static str,
    },
    /// A program the lab drives refused.
    #[error("`{command}` failed: {stderr}")]
    Command {
        /// The command line.
        command: String,
        /// What it wrote to standard error.
        stderr: String,
    },
    /// The specification asks for something a lab cannot be.
    #[error("{0}")]
    InvalidSpec(String),
    /// A lab of that name is up already.
    #[error("lab {name:?} is up already: `weft lab down {name}` removes it")]
    Exists {
        /// Its name.
        name: String,
    },
    /// No node, link or lab of that name; the message lists the known ones.
    #[error("{0}")]
    Unknown(String),
    /// The kernel cannot fix the multipath hash seed, so no prediction is possible.
    #[error(
        "this kernel has no net.ipv4.fib_multipath_hash_seed (Linux 6.11 brought it): which port takes which spine cannot be computed"
    )]
    Unpredictable,
    /// Which way packets go is not the lab's decision.
    #[error(
        "this lab's routes are FRR's: `weft route explain --from-lab` follows a flow through the tables as they are installed"
    )]
    RoutesOfItsOwn,
    /// The operating system refused.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// A state file is not one that this version wrote.
    #[error("{} is not a lab's state: {source} (remove it, or `weft lab down --all`)", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// Where it stops being readable.
        source: serde_json::Error,
    },
}

impl LabError {
    /// For `map_err`: the system refused while doing `what`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
