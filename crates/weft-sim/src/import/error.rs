//! The errors of readers.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::graph::GraphError;

/// The reason why a file cannot be read, with the place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    file: PathBuf,
    place: Place,
    message: String,
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The file.
    File,
    /// A line, counting from one.
    Line(usize),
    /// A byte of the uncompressed content, counting from zero.
    Byte(u64),
    /// A node, by its number in the file.
    Node(u64),
}

impl ImportError {
    /// Returns an error about a file.
    pub(super) fn new(file: &Path, message: impl fmt::Display) -> Self {
        Self::at(file, Place::File, message)
    }

    /// Returns an error about a place in a file.
    pub(super) fn at(file: &Path, place: Place, message: impl fmt::Display) -> Self {
        Self { file: file.into(), place, message: message.to_string() }
    }

    /// Returns a graph's error. A node that waits for ever has its place in the file: a line, or a node.
    pub(super) fn graph(file: &Path, error: &GraphError, of_lines: bool) -> Self {
        match error {
            GraphError::Stuck { rank, label, reason } => {
                let label = *label;
                let place = match of_lines {
                    true => Place::Line(label as usize),
                    false => Place::Node(label.into()),
                };
                let message = format!("this node of rank {rank} would wait for ever: {reason}");
                Self::at(file, place, message)
            }
            error => Self::new(file, error),
        }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        match self.place {
            Place::File => write!(out, "{file}: ")?,
            Place::Line(line) => write!(out, "{file}:{line}: ")?,
            Place::Byte(byte) => write!(out, "{file}: byte {byte}: ")?,
            Place::Node(node) => write!(out, "{file}: node {node}: ")?,
        }
        out.write_str(&self.message)
    }
}

impl std::error::Error for ImportError {}
