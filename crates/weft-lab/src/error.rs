//! The errors of a lab, with their remedies.

use std::io;
use std::path::PathBuf;

/// An error of a lab.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The process may not create network namespaces.
    #[error("a lab needs root to create network namespaces: run it again with sudo")]
    NeedsRoot,
    /// A required program is not installed.
    #[error(
        "`{tool}` is not installed: it comes with the Debian package {package} (apt-get install {package})"
    )]
    MissingTool {
        /// The program.
        tool: &'static str,
        /// The Debian package that contains it.
        package: &'static str,
    },
    /// A program failed.
    #[error("`{command}` failed: {stderr}")]
    Command {
        /// The command line.
        command: String,
        /// The text on its standard error.
        stderr: String,
    },
    /// A field of the specification is out of its range; the message names both.
    #[error("{0}")]
    InvalidSpec(String),
    /// A lab of that name is already up.
    #[error("lab {name:?} is up already: `weft lab down {name}` removes it")]
    Exists {
        /// The lab's name.
        name: String,
    },
    /// No node, link or lab has that name; the message lists the known ones.
    #[error("{0}")]
    Unknown(String),
    /// The kernel cannot set the multipath hash seed, so paths cannot be predicted.
    #[error(
        "this kernel has no net.ipv4.fib_multipath_hash_seed (Linux 6.11 brought it): which port takes which spine cannot be computed"
    )]
    Unpredictable,
    /// The lab's routes are FRR's, so the lab cannot predict paths.
    #[error(
        "this lab's routes are FRR's: `weft route explain --from-lab` follows a flow through the tables as they are installed"
    )]
    DynamicRoutes,
    /// An error of the operating system.
    #[error("cannot {what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A state file does not have the format of this version.
    #[error("{} is not a lab's state: {source} (remove it, or `weft lab down --all`)", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// The parse error with its position.
        source: serde_json::Error,
    },
}

impl LabError {
    /// Returns a function for `map_err` that adds the operation `what` to an error.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
