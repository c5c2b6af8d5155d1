//! The terminal of a command: text for people or JSON for programs, from one value, and errors on one line.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;

use crate::Table;
use anyhow::Result;
use serde::Serialize;
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
        io::stdout().write_all(text.as_bytes()).map_err(StdoutError)?;
        Ok(())
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
        anstream::stdout().write_all(text.as_bytes()).map_err(StdoutError)?;
        Ok(())
    }
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

/// Prints the error and its chain of causes as one line on standard error. Libraries' messages contain the remedy.
pub fn print_error(error: &anyhow::Error) {
    let mut line = String::from("\x1b[1;31merror:\x1b[0m ");
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Some errors repeat their cause in their own words.
        if !message.contains(&cause) {
            let separator = if message.is_empty() { "" } else { ": " };
            write!(message, "{separator}{cause}").expect("writing to a string cannot fail");
        }
    }
    line.push_str(&message);
    line.push('\n');
    // If standard error is closed, the failure cannot be reported.
    let _ = anstream::stderr().write_all(line.as_bytes());
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
