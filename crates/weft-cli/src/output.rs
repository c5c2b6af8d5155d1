//! Text for people and JSON for programs, from one value.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use terminal_size::{Width, terminal_size};
use weft_report::Table;

use crate::destination::Destination;

/// Where a command's results go, and in which form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) const fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether a program reads.
    pub(crate) const fn is_json(self) -> bool {
        self.json
    }

    /// Text that is the same for people and programs, such as CSV.
    pub(crate) fn raw(self, text: &str) -> Result<()> {
        io::stdout().write_all(text.as_bytes()).map_err(StdoutError)?;
        Ok(())
    }

    /// The table, or its rows as JSON.
    pub(crate) fn table(self, table: &Table) -> Result<()> {
        self.value(&table.to_json(), || render(table))
    }

    /// `value` as JSON, or what `text` says of it. One call is one JSON document.
    pub(crate) fn value(self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        let mut text = if self.json { serde_json::to_string_pretty(value)? } else { text() };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        // Styles are left out for a pipe, a dumb terminal and NO_COLOR.
        anstream::stdout().write_all(text.as_bytes()).map_err(StdoutError)?;
        Ok(())
    }
}

/// The table as wide as the terminal allows; a pipe gets all of it on one line a row.
pub(crate) fn render(table: &Table) -> String {
    let width = io::stdout().is_terminal().then(terminal_size).flatten();
    table.to_text(width.map(|(Width(columns), _)| columns), true)
}

/// Writes a file, and the folders above it.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<()> {
    Destination::open(path)?.write(text)
}

/// Prints the whole chain of causes in one line; libraries put the fix into theirs.
pub(crate) fn print_error(error: &anyhow::Error) {
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
    // Without a standard error there is nobody to tell.
    let _ = anstream::stderr().write_all(line.as_bytes());
}

/// Standard output cannot be written to. Its own type tells a reader that closed it, as `head` does, from a socket or
/// a file of ours that broke.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output: {0}")]
pub(crate) struct StdoutError(pub(crate) io::Error);

/// Returns `true` if a command failed because the reader of standard output closed it: no failure of ours.
pub(crate) fn reader_is_gone(error: &anyhow::Error) -> bool {
    let stdout = error.downcast_ref::<StdoutError>();
    stdout.is_some_and(|error| error.0.kind() == ErrorKind::BrokenPipe)
}
