//! The state of all hosts: the last reports of each, recent events, and some minutes of history of every pair.

use std::collections::{BTreeMap, VecDeque};

use weft_stat::EventKind;

use super::picture::{Ends, Paths, Point, paths_of};
use super::watch::{Happened, Report, now};

/// The collector's state of a host.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The last reports, oldest first: rates are computed over all of them.
    pub(super) reports: VecDeque<Report>,
    /// The reason why the host does not answer, if so.
    pub(super) silent: Option<String>,
    /// The number of its last event that was received, and the agent that sent it.
    heard: (u64, u64),
}

/// The collector's state of all hosts.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Hosts in the order in which they were named.
    pub(super) hosts: BTreeMap<String, Known>,
    /// Recent events, oldest first.
    pub(super) events: VecDeque<Happened>,
    /// Points of every pair of programs and of hosts, oldest first.
    pub(super) history: BTreeMap<Ends, VecDeque<Point>>,
    /// Paths of connections that were in use recently.
    pub(super) paths: BTreeMap<(String, String, u64), Paths>,
    /// The time that history covers, ms.
    pub(super) keep: u64,
}

/// Number of reports over which rates are computed.
const REPORTS: usize = 6;
/// Number of events that are kept.
const EVENTS: usize = 1000;
/// The time for which the paths of an idle connection are shown, ms.
const PATHS_FOR: u64 = 60_000;

impl State {
    pub(super) fn new(hosts: &[String], keep: u64) -> Self {
        let hosts = hosts.iter().map(|host| (host.clone(), Known::default())).collect();
        Self { hosts, keep, ..Self::default() }
    }

    /// Returns the number of a host's last known event; later ones are requested. A restarted agent counts from 1, and
    /// sends fewer than were requested; the others come with its next report.
    pub(super) fn after(&self, host: &str) -> u64 {
        self.hosts.get(host).map_or(0, |known| known.heard.1)
    }

    /// Adds a host's report.
    pub(super) fn take(&mut self, host: &str, mut report: Report) {
        // Two hosts may report the same name; the names in the collector's configuration are unique.
        let same = self.hosts.iter().any(|(other, it)| {
            other != host && it.reports.back().is_some_and(|last| last.host == report.host)
        });
        if same && !report.host.contains(host) {
            report.host = format!("{}@{host}", report.host);
        }
        let Some(known) = self.hosts.get_mut(host) else { return };
        let mut events = std::mem::take(&mut report.events);
        events.iter_mut().for_each(|event| event.host.clone_from(&report.host));
        if known.heard.0 != report.epoch {
            known.heard = (report.epoch, 0);
            known.reports.clear();
        }
        known.heard.1 = events.last().map_or(known.heard.1, |event| event.number);
        if known.silent.take().is_some() && !known.reports.is_empty() {
            events.push(about(&report.host, EventKind::Answers, ""));
        }
        if known.reports.len() == REPORTS {
            known.reports.pop_front();
        }
        known.reports.push_back(report);
        self.note(events);
    }

    /// Records that a host did not answer.
    pub(super) fn miss(&mut self, host: &str, why: &str) {
        let Some(known) = self.hosts.get_mut(host) else { return };
        if known.silent.replace(why.to_owned()).is_none() {
            let name = known.reports.back().map_or(host, |report| &report.host).to_owned();
            self.note(vec![about(&name, EventKind::Silent, why)]);
        }
    }

    fn note(&mut self, events: Vec<Happened>) {
        self.events.extend(events);
        let surplus = self.events.len().saturating_sub(EVENTS);
        self.events.drain(..surplus);
        self.events.make_contiguous().sort_by_key(|event| event.at);
    }

    /// Adds a point of history for every pair, and the paths, after every host was asked.
    pub(super) fn remember(&mut self) {
        let at = now();
        for (ends, point) in self.points(at) {
            self.history.entry(ends).or_default().push_back(point);
        }
        let oldest = at.saturating_sub(self.keep);
        self.history.retain(|_, points| {
            let old = points.iter().take_while(|point| point.at < oldest).count();
            points.drain(..old);
            !points.is_empty()
        });
        let seen: Vec<_> = self.living().flat_map(|report| paths_of(report, at)).collect();
        self.paths.extend(seen);
        self.paths.retain(|_, paths| at.saturating_sub(paths.at) < PATHS_FOR);
    }

    /// Returns the last report of each host that answers.
    pub(super) fn living(&self) -> impl Iterator<Item = &Report> {
        let answering = self.hosts.values().filter(|known| known.silent.is_none());
        answering.filter_map(|known| known.reports.back())
    }
}

/// Returns an event about a host.
fn about(host: &str, kind: EventKind, text: &str) -> Happened {
    Happened { host: host.to_owned(), text: text.to_owned(), ..Happened::to("", 0, now(), kind) }
}
