//! The errors of a scenario: the file, the line, the key, and the expected value.

use std::fmt;
use std::path::{Path, PathBuf};

use weft_units::suggest;

use crate::workload::WorkloadError;

/// The reason why a scenario cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    file: Option<PathBuf>,
    line: Option<usize>,
    message: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(out, "{}:{line}: ", file.display())?,
            (Some(file), None) => write!(out, "{}: ", file.display())?,
            (None, Some(line)) => write!(out, "line {line}: ")?,
            (None, None) => {}
        }
        out.write_str(&self.message)
    }
}

impl std::error::Error for ScenarioError {}

impl ScenarioError {
    pub(super) fn new(message: impl fmt::Display) -> Self {
        Self { file: None, line: None, message: message.to_string() }
    }

    pub(super) fn unreadable(file: &Path, error: &std::io::Error) -> Self {
        Self { file: Some(file.into()), ..Self::new(error) }
    }

    /// Returns the same error with this file.
    #[must_use]
    pub fn in_file(self, file: &Path) -> Self {
        Self { file: Some(file.into()), ..self }
    }

    /// Returns the same error without a line, for a generated text whose lines mean nothing to a reader.
    #[must_use]
    pub(super) fn without_line(self) -> Self {
        Self { line: None, ..self }
    }

    /// Returns the TOML reader's error. Inside tagged tables it has no line and no key, so the key, or the rejected
    /// value, is searched for in the text.
    pub(crate) fn syntax(error: &toml::de::Error, text: &str) -> Self {
        let message = error.message();
        let at = error.span().map(|span| line_of(text, span.start));
        let start = at.unwrap_or(1);
        let explained = explain(message);
        if let Some((key, _)) = unknown(message, "field") {
            return Self {
                file: None,
                line: find_key(text, key, start).or(at),
                message: explained,
            };
        }
        match quoted(message).and_then(|value| find_value(text, value, start)) {
            Some((line, key)) => {
                Self { file: None, line: Some(line), message: format!("{key}: {explained}") }
            }
            None => Self { file: None, line: at, message: explained },
        }
    }

    /// Returns an error about a section that was read apart from its text.
    pub(super) fn section(section: &str, error: impl fmt::Display, text: &str) -> Self {
        let message = &error.to_string();
        let header = format!("[{section}]");
        let start = text.lines().position(|line| line.trim() == header);
        let key = unknown(message, "field").map(|(key, _)| key);
        let key = key.or_else(|| message.split(' ').next());
        let line = key.and_then(|key| find_key(text, key, start.map_or(1, |line| line + 1)));
        let message = format!("[{section}]: {}", explain(message));
        Self { file: None, line: line.or_else(|| start.map(|line| line + 1)), message }
    }

    /// Returns an error about the last variant of this name.
    pub(super) fn variant(name: &str, message: &str, text: &str) -> Self {
        // `find_value` is no use here: an invalid name may contain the separators of values.
        let key = format!("name={name:?}").replace(' ', "");
        let named = (1..)
            .zip(text.lines())
            .filter(|(_, line)| line.replace(' ', "").replace('\'', "\"").contains(&key));
        let line = named.last().map(|(line, _)| line);
        Self { file: None, line, message: format!("variant {name:?}: {message}") }
    }

    /// Returns an error about the workload at `index`.
    pub(super) fn workload(index: usize, kind: &str, error: &WorkloadError, text: &str) -> Self {
        let lines = (1..).zip(text.lines());
        let mut headers = lines.filter(|(_, line)| line.trim() == "[[workload]]");
        let start = headers.nth(index).map_or(1, |(number, _)| number);
        let line = error.key().and_then(|key| find_key(text, key, start));
        let message = format!("workload {} ({kind}): {error}", index + 1);
        Self { file: None, line, message }
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// Returns the first line from `start` on, counting from one, that sets `key` or begins a table of that name, or else
/// any line that does.
fn find_key(text: &str, key: &str, start: usize) -> Option<usize> {
    let last = key.rsplit('.').next().unwrap_or(key);
    let sets = |line: &str| {
        let line = line.trim();
        let name = line.trim_start_matches('[').split(['=', ']']).next().unwrap_or("").trim();
        // In an inline table the key is further along the line.
        name.rsplit('.').next().is_some_and(|name| name.trim() == last)
            || line.split(['{', ',']).skip(1).any(|part| {
                part.split('=').next().is_some_and(|name| name.trim() == last) && part.contains('=')
            })
    };
    let lines = || (1..).zip(text.lines());
    let from_start = lines().find(|&(number, line)| number >= start && sets(line));
    from_start.or_else(|| lines().find(|(_, line)| sets(line))).map(|(number, _)| number)
}

/// Returns the first line from `start` on that sets a key to `value`, and the key.
fn find_value<'a>(text: &'a str, value: &str, start: usize) -> Option<(usize, &'a str)> {
    let is_value = |text: &str| text.trim().trim_matches(['"', '\'']) == value;
    let key_of = |line: &'a str| {
        // In an inline table, or a list, the value is one of several.
        let mut key = None;
        line.split([',', '{', '}', '[', ']']).find_map(|part| {
            let (name, rest) = part.split_once('=').map_or((None, part), |(n, r)| (Some(n), r));
            key = name.map(str::trim).or(key);
            if is_value(rest) { key } else { None }
        })
    };
    let lines = (1..).zip(text.lines()).skip(start.saturating_sub(1));
    lines.filter_map(|(number, line)| Some((number, key_of(line)?))).next()
}

/// Returns the first text in quotes: the subject of serde's messages and of ours.
fn quoted(message: &str) -> Option<&str> {
    let start = message.find(['"', '`'])?;
    let (quote, rest) = message[start..].split_at(1);
    rest.split_once(quote).map(|(inside, _)| inside)
}

/// Returns the name and the known ones of serde's "unknown field" or "unknown variant" message.
fn unknown<'a>(message: &'a str, what: &str) -> Option<(&'a str, Vec<&'a str>)> {
    let rest = message.strip_prefix("unknown ")?.strip_prefix(what)?.strip_prefix(" `")?;
    let (name, rest) = rest.split_once('`')?;
    let known = rest.split('`').skip(1).step_by(2).collect();
    Some((name, known))
}

/// Returns serde's message with the nearest known name.
fn explain(message: &str) -> String {
    let (what, (name, known)) = match (unknown(message, "field"), unknown(message, "variant")) {
        (Some(key), _) => ("key", key),
        (_, Some(value)) => ("value", value),
        _ => return message.lines().next().unwrap_or(message).to_owned(),
    };
    let nearest = suggest(name, known.iter().copied())
        .map_or_else(String::new, |name| format!(", did you mean {name:?}?"));
    format!("unknown {what} {name:?}{nearest} (known: {})", known.join(", "))
}
