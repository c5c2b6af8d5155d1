//! The journal of a soak: every alarm of a daemon, every error of a workload and every end of a process, each with its time
//! since the start; and the judgement which of them the schedule's faults explain.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_events::EVENTS;

/// Something that a healthy fabric does not have, or that has to be explained: an event, a warning, an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// The time since the start.
    pub(crate) at: Duration,
    /// The daemon or the workload: `vpc h0`, `tenants red 0-1`.
    pub(crate) who: String,
    /// The line of the log, or the error.
    pub(crate) what: String,
}

/// A permission that a fault of the schedule gives: troubles of this kind in this time are its effects.
#[derive(Clone, Debug)]
pub(crate) struct Allowance {
    /// The first part of the daemon's or workload's name; empty for all.
    pub(crate) who: String,
    /// A part of the text; empty for all.
    pub(crate) what: &'static str,
    /// The time since the start from which on it counts.
    pub(crate) from: Duration,
    /// The time since the start until which it counts.
    pub(crate) until: Duration,
}

impl Allowance {
    fn explains(&self, trouble: &Trouble) -> bool {
        trouble.who.starts_with(&self.who)
            && trouble.what.contains(self.what)
            && (self.from..=self.until).contains(&trouble.at)
    }
}

/// The journal, shared by all threads.
#[derive(Debug)]
pub(crate) struct Journal {
    started: Instant,
    troubles: Mutex<Vec<Trouble>>,
}

impl Journal {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), troubles: Mutex::default() }
    }

    /// Returns the time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Adds a trouble of this moment.
    pub(crate) fn note(&self, who: &str, what: impl Into<String>) {
        let trouble = Trouble { at: self.now(), who: who.to_owned(), what: what.into() };
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).push(trouble);
    }

    /// Adds a line of a daemon's log if it has to be explained.
    pub(crate) fn log_line(&self, who: &str, line: &str) {
        if has_to_be_explained(line) {
            self.note(who, line);
        }
    }

    /// Returns all troubles from the one with this number on.
    pub(crate) fn since(&self, number: usize) -> Vec<Trouble> {
        let troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.get(number..).unwrap_or_default().to_vec()
    }
}

/// Returns `true` for a line of a JSON log that is an event of the table, a warning or an error, and for a line that is no
/// JSON, such as a panic.
fn has_to_be_explained(line: &str) -> bool {
    let Ok(entry) = serde_json::from_str::<Value>(line) else { return !line.trim().is_empty() };
    let event = entry["fields"]["event"].as_str().unwrap_or_default();
    matches!(entry["level"].as_str(), Some("WARN" | "ERROR"))
        || EVENTS.iter().any(|it| it.name == event)
}

/// Returns the troubles that no allowance explains.
pub(crate) fn unexplained<'a>(troubles: &'a [Trouble], by: &[Allowance]) -> Vec<&'a Trouble> {
    troubles.iter().filter(|trouble| !by.iter().any(|it| it.explains(trouble))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_warnings_and_panics_have_to_be_explained_and_other_lines_do_not() {
        let line = |level: &str, event: &str| {
            format!(r#"{{"level":"{level}","fields":{{"message":"m","event":"{event}"}}}}"#)
        };
        assert!(has_to_be_explained(&line("INFO", "lease-gained")));
        assert!(has_to_be_explained(&line("WARN", "")));
        assert!(has_to_be_explained("thread 'main' panicked at src/main.rs:1:1:"));
        assert!(!has_to_be_explained(&line("INFO", "")));
        assert!(!has_to_be_explained(""));
    }

    #[test]
    fn an_allowance_explains_its_daemon_its_text_and_its_time_only() {
        let trouble = |at, who: &str, what: &str| Trouble {
            at: Duration::from_secs(at),
            who: who.into(),
            what: what.into(),
        };
        let [from, until] = [10, 20].map(Duration::from_secs);
        let allowance = Allowance { who: "vpc".into(), what: "paths-down", from, until };
        let troubles = [
            trouble(15, "vpc h1", "paths-down of 10.1.0.2"),
            trouble(9, "vpc h1", "paths-down of 10.1.0.2"),
            trouble(21, "vpc h1", "paths-down of 10.1.0.2"),
            trouble(15, "route a", "paths-down of 10.1.0.2"),
            trouble(15, "vpc h1", "peer-lost"),
        ];
        let left = unexplained(&troubles, &[allowance]);
        assert_eq!(left, troubles[1..].iter().collect::<Vec<_>>());
    }
}
