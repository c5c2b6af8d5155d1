//! The terminal of a command: text for people or JSON for programs, from one value, and errors on one line.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;

use crate::Table;
use anyhow::Result;
use serde::Serialize;
use terminal_size::{Width, terminal_size};

mod destination;

pub use destination::Destination;

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
    /// Standard output cannot be written to ([`StdoutError`]).
    pub fn raw(self, text: &str) -> Result<()> {
        io::stdout().write_all(text.as_bytes()).map_err(StdoutError)?;
        Ok(())
    }

    /// Prints the table, or its rows as JSON.
    ///
    /// # Errors
    /// Standard output cannot be written to ([`StdoutError`]).
    pub fn table(self, table: &Table) -> Result<()> {
        self.value(&table.to_json(), || render(table))
    }

    /// Prints `value` as one JSON document, or `text` in its place.
    ///
    /// # Errors
    /// Standard output cannot be written to ([`StdoutError`]), or `value` cannot be JSON.
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

/// Returns the table as text: as wide as the terminal, or for a pipe with one line a row.
pub fn render(table: &Table) -> String {
    let width = io::stdout().is_terminal().then(terminal_size).flatten();
    table.to_text(width.map(|(Width(columns), _)| columns), true)
}

/// Writes a file, and makes the folders above it.
///
/// # Errors
/// See [`Destination`].
pub fn write_file(path: &Path, text: &str) -> Result<()> {
    Destination::open(path)?.write(text)
}

/// Prints the whole chain of causes in one line; libraries put the fix into theirs.
pub fn print_error(error: &anyhow::Error) {
    let mut line = String::from("\x1b[1;31merror:\x1b[0m ");
    let mut said = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Some errors repeat their cause in their own words.
        if !said.contains(&cause) {
            let separator = if said.is_empty() { "" } else { ": " };
            write!(said, "{separator}{cause}").expect("writing to a string cannot fail");
        }
    }
    line.push_str(&said);
    line.push('\n');
    // Without a standard error there is nowhere to report it.
    let _ = anstream::stderr().write_all(line.as_bytes());
}

/// Standard output cannot be written to. Its own type tells a reader that closed it, as `head` does, from a socket or
/// a file of ours that broke.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output: {0}")]
pub struct StdoutError(pub io::Error);

/// Returns `true` if a command failed because the reader of standard output closed it: no failure of ours.
pub fn reader_is_gone(error: &anyhow::Error) -> bool {
    let stdout = error.downcast_ref::<StdoutError>();
    stdout.is_some_and(|error| error.0.kind() == ErrorKind::BrokenPipe)
}
