//! The events of the monitor's log: agents that are lost and found, and programs of this host that cannot be read.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weft_events::{AgentFound, AgentLost, ProgramsRead, ProgramsUnread};

use super::collect::State;

/// The name of this host in the collector's state.
pub(super) const HERE: &str = "this host";

/// The time between two events about a host: one whose agent answers now and then does not fill the log.
const EVENT_INTERVAL: Duration = Duration::from_secs(10);

/// The last event about each host.
#[derive(Debug, Default)]
pub(super) struct Presence(BTreeMap<String, Logged>);

/// The kind and the time of an event.
#[derive(Clone, Copy, Debug)]
struct Logged {
    is_lost: bool,
    at: Instant,
}

/// A change that is logged.
#[derive(Debug, PartialEq, Eq)]
enum Changed {
    Lost(String),
    /// The host is found, after this time.
    Found(Duration),
}

impl Presence {
    /// Logs which hosts were lost and found since the last call.
    pub(super) fn on_state(&mut self, state: &State, now: Instant) {
        for (host, known) in &state.hosts {
            let Some(changed) = self.update(host, known.silent.as_deref(), now) else { continue };
            match changed {
                Changed::Lost(reason) if host == HERE => ProgramsUnread { reason }.emit(),
                Changed::Lost(reason) => AgentLost { host: host.clone(), reason }.emit(),
                Changed::Found(after) if host == HERE => {
                    ProgramsRead { seconds: after.as_secs_f64() }.emit();
                }
                Changed::Found(_) => AgentFound { host: host.clone() }.emit(),
            }
        }
    }

    /// Takes a host's state: the reason that it does not answer, if it does not.
    fn update(&mut self, host: &str, silent: Option<&str>, now: Instant) -> Option<Changed> {
        let logged = self.0.get(host).copied();
        let was_lost = logged.is_some_and(|logged| logged.is_lost);
        let span = logged.map(|logged| now.saturating_duration_since(logged.at));
        if silent.is_some() == was_lost || span.is_some_and(|span| span < EVENT_INTERVAL) {
            return None;
        }
        self.0.insert(host.to_owned(), Logged { is_lost: silent.is_some(), at: now });
        Some(match silent {
            Some(reason) => Changed::Lost(reason.to_owned()),
            None => Changed::Found(span.unwrap_or_default()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_comes_and_goes_is_one_event_in_ten_seconds() {
        let start = Instant::now();
        let mut presence = Presence::default();
        let mut update =
            |second, silent| presence.update("a", silent, start + Duration::from_secs(second));
        let lost = |reason: &str| Some(Changed::Lost(reason.to_owned()));
        assert_eq!(update(0, None), None, "it answers from the start");
        assert_eq!(update(1, Some("refused")), lost("refused"));
        for second in 2..11 {
            let silent = (second % 2 == 0).then_some("no answer");
            assert_eq!(update(second, silent), None);
        }
        assert_eq!(update(11, None), Some(Changed::Found(Duration::from_secs(10))));
        assert_eq!(update(12, Some("refused")), None);
        assert_eq!(update(21, Some("no answer")), lost("no answer"));
        assert_eq!(update(22, Some("another reason")), None, "it is lost already");
    }
}
