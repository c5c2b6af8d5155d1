//! The terminal of a command: text for people or JSON for programs, from one value, and errors on one line.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;

use crate::Table;
use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use terminal_size::{Width, terminal_size};

mod destination;

pub use destination::{Destination, StreamedFile};

/// The standard output of a command, and the form of its results.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    json: bool,
}

impl Output {
    /// Returns an output of JSON, or of text.
    pub const fn new(json: bool) -> Self {
        Self { json }
    }

    /// Returns `true` if results are JSON.
    pub const fn is_json(self) -> bool {
        self.json
    }

    /// Prints text that is the same for people and programs, such as CSV.
    ///
    /// # Errors
    /// Returns [`StdoutError`] if standard output cannot be written to.
    pub fn raw(self, text: &str) -> Result<()> {
        Ok(write_all(io::stdout(), text)?)
    }

    /// Prints the table, or its rows as JSON.
    ///
    /// # Errors
    /// Returns [`StdoutError`] if standard output cannot be written to.
    pub fn table(self, table: &Table) -> Result<()> {
        self.value(&table.to_json(), || render(table))
    }

    /// Prints `value` as one JSON document if the output is JSON; otherwise prints `text`.
    ///
    /// # Errors
    /// Returns [`StdoutError`] if standard output cannot be written to, or an error if `value` cannot be serialised.
    pub fn value(self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        let mut text = if self.json { serde_json::to_string_pretty(value)? } else { text() };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        // Styles are left out for a pipe, a dumb terminal and NO_COLOR.
        Ok(write_all(anstream::stdout(), &text)?)
    }

    /// Prints the error and its chain of causes on standard error: as one line, or as one JSON object if the output is
    /// JSON. Libraries' messages contain the remedy.
    pub fn error(self, error: &anyhow::Error) {
        let message = message(error);
        let line = if self.json {
            let causes: Vec<_> = error.chain().skip(1).map(ToString::to_string).collect();
            json!({ "error": message, "causes": causes }).to_string()
        } else {
            format!("\x1b[1;31merror:\x1b[0m {message}")
        };
        // If standard error is closed, the failure cannot be reported.
        let _ = anstream::stderr().write_all(format!("{line}\n").as_bytes());
    }
}

/// Writes all of a text to standard output, past its buffer: what a full disk refuses is an error now, and not lost when
/// the program ends.
fn write_all(mut to: impl Write, text: &str) -> Result<(), StdoutError> {
    to.write_all(text.as_bytes()).and_then(|()| to.flush()).map_err(StdoutError)
}

/// Returns the table as styled text: wrapped to the width of the terminal, or with one line for each row if standard
/// output is not a terminal.
pub fn render(table: &Table) -> String {
    let width = io::stdout().is_terminal().then(terminal_size).flatten();
    table.to_text(width.map(|(Width(columns), _)| columns), true)
}

/// Writes a file, and makes the folders above it.
///
/// # Errors
/// Returns the errors of [`Destination::open`] and [`Destination::write`].
pub fn write_file(path: &Path, text: &str) -> Result<()> {
    Destination::open(path)?.write(text)
}

/// Returns the error and its chain of causes in one line.
fn message(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Some errors repeat their cause in their own words.
        if !message.contains(&cause) {
            let separator = if message.is_empty() { "" } else { ": " };
            write!(message, "{separator}{cause}").expect("writing to a string cannot fail");
        }
    }
    message
}

/// The error of a write to standard output. It has a type of its own, which distinguishes a reader that closed standard
/// output, as `head` does, from a broken socket or file of Weft.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output: {0}")]
pub struct StdoutError(pub io::Error);

/// Returns `true` if a command failed because the reader of standard output closed it, which is not a failure of the
/// command.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let stdout = error.downcast_ref::<StdoutError>();
    stdout.is_some_and(|error| error.0.kind() == ErrorKind::BrokenPipe)
}
