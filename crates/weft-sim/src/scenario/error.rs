//! Why a scenario cannot be used: the file, the line, the key, and what was expected.

use std::fmt;
use std::path::{Path, PathBuf};

use weft_units::suggest;

/// Why a scenario cannot be used.
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

    /// The same error, in this file.
    #[must_use]
    pub(super) fn in_file(self, file: &Path) -> Self {
        Self { file: Some(file.into()), ..self }
    }

    /// What the TOML reader found. Inside tagged tables it knows no line, so the key is looked for.
    pub(super) fn syntax(error: &toml::de::Error, text: &str) -> Self {
        let message = error.message();
        let at = error.span().map(|span| line_of(text, span.start));
        let line = match unknown_key(message) {
            Some((key, _)) => find_key(text, key, at.unwrap_or(1)).or(at),
            None => at,
        };
        Self { file: None, line, message: explain(message) }
    }

    /// What is wrong with a section that was read apart from its text.
    pub(super) fn section(section: &str, message: &str, text: &str) -> Self {
        let header = format!("[{section}]");
        let start = text.lines().position(|line| line.trim() == header);
        let key = unknown_key(message).map(|(key, _)| key).or_else(|| message.split(' ').next());
        let line = key.and_then(|key| find_key(text, key, start.map_or(1, |line| line + 1)));
        let message = format!("[{section}]: {}", explain(message));
        Self { file: None, line: line.or_else(|| start.map(|line| line + 1)), message }
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// The first line from `start` on, counting from one, that sets `key` or begins a table of that
/// name; failing that, any line that does.
fn find_key(text: &str, key: &str, start: usize) -> Option<usize> {
    let last = key.rsplit('.').next().unwrap_or(key);
    let sets = |line: &str| {
        let line = line.trim();
        let name = line.trim_start_matches('[').split(['=', ']']).next().unwrap_or("").trim();
        // In an inline table the key stands further on.
        name.rsplit('.').next().is_some_and(|name| name.trim() == last)
            || line.split(['{', ',']).skip(1).any(|part| {
                part.split('=').next().is_some_and(|name| name.trim() == last) && part.contains('=')
            })
    };
    let lines = || (1..).zip(text.lines());
    let from_start = lines().find(|&(number, line)| number >= start && sets(line));
    from_start.or_else(|| lines().find(|(_, line)| sets(line))).map(|(number, _)| number)
}

/// The key and the known ones of serde's "unknown field" message.
fn unknown_key(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message.strip_prefix("unknown field `")?;
    let (key, rest) = rest.split_once('`')?;
    let known = rest.split('`').skip(1).step_by(2).collect();
    Some((key, known))
}

/// Serde's message with the nearest known key named.
fn explain(message: &str) -> String {
    let Some((key, known)) = unknown_key(message) else {
        return message.lines().next().unwrap_or(message).to_owned();
    };
    let nearest = suggest(key, known.iter().copied())
        .map_or_else(String::new, |name| format!(", did you mean {name:?}?"));
    format!("unknown key {key:?}{nearest} (known: {})", known.join(", "))
}
