//! The state of all hosts: the last reports of each, recent events, and some minutes of history of every pair.

use std::collections::{BTreeMap, VecDeque};

use weft_stat::EventKind;

use super::pairs::{Ends, Paths, Point};
use super::pings::Received;
use super::watch::{HostEvent, Report, now};

/// The collector's state of a host.
#[derive(Debug, Default)]
pub(super) struct HostState {
    /// The last reports, oldest first: rates are computed over all of them.
    pub(super) reports: VecDeque<Report>,
    /// The reason why the host does not answer; `None` if it answers.
    pub(super) silent: Option<String>,
    /// The epoch of its agent, and the number of the last event that was received from that agent.
    last_event: (u64, u64),
}

/// The collector's state of all hosts.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Hosts by their names in the monitor's configuration.
    pub(super) hosts: BTreeMap<String, HostState>,
    /// Recent events, oldest first.
    pub(super) events: VecDeque<HostEvent>,
    /// Points of every pair of programs and of hosts, oldest first.
    pub(super) history: BTreeMap<Ends, VecDeque<Point>>,
    /// Paths of connections that were in use recently.
    pub(super) paths: BTreeMap<(String, String, u64), Paths>,
    /// The last matrix of `weft ping`.
    pub(super) pings: Option<Received>,
    /// The time that history covers, ms.
    pub(super) keep: u64,
}

/// Number of reports over which rates are computed.
const MAX_REPORTS: usize = 6;
/// Number of events that are kept.
const MAX_EVENTS: usize = 1000;

impl State {
    pub(super) fn new(hosts: &[String], keep: u64) -> Self {
        let hosts = hosts.iter().map(|host| (host.clone(), HostState::default())).collect();
        Self { hosts, keep, ..Self::default() }
    }

    /// Returns the number of a host's last known event; the next request asks for later ones. A restarted agent counts
    /// from 1: its first report omits the events up to this number and is taken without events, and its next report has
    /// all.
    pub(super) fn after(&self, host: &str) -> u64 {
        self.hosts.get(host).map_or(0, |known| known.last_event.1)
    }

    /// Adds a host's report.
    pub(super) fn take(&mut self, host: &str, mut report: Report) {
        // Two hosts may report the same name; the names in the collector's configuration are unique.
        let is_duplicate = self.hosts.iter().any(|(other, it)| {
            other != host && it.reports.back().is_some_and(|last| last.host == report.host)
        });
        if is_duplicate && !report.host.contains(host) {
            report.host = format!("{}@{host}", report.host);
        }
        let Some(known) = self.hosts.get_mut(host) else { return };
        let mut events = std::mem::take(&mut report.events);
        events.iter_mut().for_each(|event| event.host.clone_from(&report.host));
        if known.last_event.0 != report.epoch {
            // The request asked for events after a number of the former agent: the next one asks for all.
            if known.last_event.1 > 0 {
                events.clear();
            }
            known.last_event = (report.epoch, 0);
            known.reports.clear();
        }
        known.last_event.1 = events.last().map_or(known.last_event.1, |event| event.number);
        if known.silent.take().is_some() && !known.reports.is_empty() {
            events.push(about(&report.host, EventKind::Answers, ""));
        }
        if known.reports.len() == MAX_REPORTS {
            known.reports.pop_front();
        }
        known.reports.push_back(report);
        self.add_events(events);
    }

    /// Records that a host did not answer.
    pub(super) fn on_no_answer(&mut self, host: &str, why: &str) {
        let Some(known) = self.hosts.get_mut(host) else { return };
        if known.silent.replace(why.to_owned()).is_none() {
            let name = known.reports.back().map_or(host, |report| &report.host).to_owned();
            self.add_events(vec![about(&name, EventKind::Silent, why)]);
        }
    }

    fn add_events(&mut self, events: Vec<HostEvent>) {
        self.events.extend(events);
        let surplus = self.events.len().saturating_sub(MAX_EVENTS);
        self.events.drain(..surplus);
        self.events.make_contiguous().sort_by_key(|event| event.at);
    }

    /// Returns the last report of each host that answers.
    pub(super) fn living(&self) -> impl Iterator<Item = &Report> {
        let answering = self.hosts.values().filter(|known| known.silent.is_none());
        answering.filter_map(|known| known.reports.back())
    }
}

/// Returns an event about a host.
fn about(host: &str, kind: EventKind, text: &str) -> HostEvent {
    HostEvent { host: host.to_owned(), text: text.to_owned(), ..HostEvent::to("", 0, now(), kind) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::Host;

    /// Returns an agent's report after it has recorded `recorded` events.
    fn report(epoch: u64, recorded: u64, after: u64) -> Report {
        let event =
            |number| HostEvent { number, ..HostEvent::to("", epoch, number, EventKind::Began) };
        Report {
            host: "a".to_owned(),
            epoch,
            at: 0,
            view: Host::default(),
            totals: Vec::new(),
            events: (after + 1..=recorded).map(event).collect(),
            ports: Vec::new(),
        }
    }

    #[test]
    fn all_events_of_a_restarted_agent_are_collected_once() {
        for recorded in [1, 3, 5] {
            let mut state = State::new(&["a".to_owned()], 0);
            for (epoch, recorded) in [(1, 2), (1, 3), (2, recorded), (2, recorded), (2, 6)] {
                let after = state.after("a");
                state.take("a", report(epoch, recorded, after));
            }
            for (epoch, count) in [(1, 3), (2, 6)] {
                let events = state.events.iter().filter(|event| event.pid == epoch);
                let numbers: Vec<u64> = events.map(|event| event.number).collect();
                assert_eq!(numbers, (1..=count).collect::<Vec<_>>(), "epoch {epoch}, {recorded}");
            }
        }
    }
}
