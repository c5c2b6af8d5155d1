//! The controller: it takes alarms, decides changes of routes, and follows each change until it has helped or is
//! undone.
//!
//! The owner moves bytes and passes the time; the controller decides. In: [`handle_report`], [`handle_sample`],
//! [`handle_probes`], [`handle_tables`], [`handle_answer`], [`handle_timeout`], [`set_lease`]. Out: [`poll_action`], [`poll_event`],
//! [`poll_timeout`].
//!
//! A move passes the stages *applying → reading → verifying → kept*, or goes from any of them to *undoing*. It is
//! verified twice: by the tables that were read back, its flows must go as planned without filling a link; and in the
//! next whole window, the links concerned must have fewer marks per byte. A move that was undone is not tried again for
//! a while, and a port gets at most [`ControllerConfig::rounds`] rounds per alarm.
//!
//! [`handle_report`]: Controller::handle_report
//! [`handle_sample`]: Controller::handle_sample
//! [`handle_probes`]: Controller::handle_probes
//! [`handle_tables`]: Controller::handle_tables
//! [`handle_answer`]: Controller::handle_answer
//! [`handle_timeout`]: Controller::handle_timeout
//! [`set_lease`]: Controller::set_lease
//! [`poll_action`]: Controller::poll_action
//! [`poll_event`]: Controller::poll_event
//! [`poll_timeout`]: Controller::poll_timeout

mod action;
mod announce;
mod decisions;
mod job;
mod kept;
mod moved;
mod probed;
mod replan;
mod reserve;
mod rounds;
mod state;
mod tables;
#[cfg(test)]
mod tests;
mod verify;

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

pub use action::{Action, Event, EventKind, Stats};
pub use announce::{Announced, PortSearch};
pub use decisions::{
    Known, Overview, PlacedJob, RECORDS_VERSION, Record, RecordKey, RecordKeyError, TakenOver,
};
pub use job::{Job, JobError, JobFlow, Pair};
use moved::Episode;
pub use moved::{Barred, Carried, Move, Stage};
use reserve::{Coming, Reservations};
use serde::{Deserialize, Serialize};
pub use state::{State, StateError};
use weft_units::{Duration, Instant};

use crate::alarm::{Alarm, AlarmRules, Alarms, Change};
use crate::bursts::ReservationRules;
use crate::fabric::{Fabric, LinkId};
use crate::installed::Prefix;
use crate::loads::Loads;
use crate::moves::MoveRules;
use crate::probes::{ProbeRules, Probes};
use crate::suspects::{Sample, SuspectRules, Suspects};
use crate::telemetry::{PortReport, Telemetry, TelemetryError};

/// The thresholds, limits and times of a controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ControllerConfig {
    /// The thresholds of the alarm levels.
    pub alarm: AlarmRules,
    /// The rules by which flows become suspects.
    pub suspects: SuspectRules,
    /// The limits of moves.
    pub moves: MoveRules,
    /// The rules of probes between hosts.
    pub probes: ProbeRules,
    /// The rules by which links are reserved for coming bursts.
    pub reservations: ReservationRules,
    /// Maximum number of rounds of moves for one alarm of one port. Most alarms end after one or two; a port with
    /// dozens of small flows needs more.
    pub rounds: u32,
    /// Maximum number of moves off a port in one round, and of flows for which no move is found.
    pub per_round: usize,
    /// The time after a window's end in which its reports may still arrive.
    pub grace: Duration,
    /// The time after which an unanswered request to a router is repeated.
    pub answer_within: Duration,
    /// The time during which a router's route to a destination, and the flows that it moved, are not moved again.
    pub hold: Duration,
    /// The time without a sample of a move's flows after which its route is withdrawn.
    pub idle: Duration,
    /// The time during which a move that was undone or refused is not tried again.
    pub bar: Duration,
    /// The time without a sample of an announced job, while other flows are sampled, after which the job is discarded.
    pub forget: Duration,
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self {
            alarm: AlarmRules::default(),
            suspects: SuspectRules::default(),
            moves: MoveRules::default(),
            probes: ProbeRules::default(),
            reservations: ReservationRules::default(),
            rounds: 10,
            per_round: 4,
            grace: Duration::from_secs(2),
            answer_within: Duration::from_secs(10),
            hold: Duration::from_secs(60),
            idle: Duration::from_secs(300),
            bar: Duration::from_secs(600),
            forget: Duration::from_secs(3600),
        }
    }
}

/// The global route controller, without sockets and without a clock.
#[derive(Clone, Debug)]
pub struct Controller {
    config: ControllerConfig,
    fabric: Fabric,
    telemetry: Telemetry,
    alarms: Alarms,
    suspects: Suspects,
    probes: Probes,
    /// The links that lose probes, around which flows of jobs are planned.
    avoided: BTreeSet<LinkId>,
    /// The epoch of the lease, while the controller holds it.
    epoch: Option<u64>,
    /// The first window that has not been evaluated.
    next_window: Option<u64>,
    /// The moves, at most one for each router and prefix.
    moves: BTreeMap<(String, Prefix), Move>,
    next_id: u64,
    barred: Vec<Barred>,
    /// The announced jobs, by name.
    jobs: BTreeMap<String, Job>,
    /// The names of the jobs whose traffic is recorded.
    recorded: Vec<String>,
    /// The bursts for which links are reserved.
    reservations: Reservations,
    /// The routers whose tables may be older than the moves: these are compared when the tables have been read.
    unread: BTreeSet<String>,
    /// `true` if tables or avoided links have changed since the paths of jobs were compared with their plans.
    are_jobs_stale: bool,
    /// The rounds of alarmed ports.
    episodes: BTreeMap<LinkId, Episode>,
    /// By router, the number of refusals in a row, and the time in nanoseconds until which it gets no moves.
    refusals: BTreeMap<String, (u32, u64)>,
    /// The links and kinds of ignored reports and samples for which this window already has an event.
    doubted: BTreeSet<(LinkId, &'static str)>,
    stats: Stats,
    actions: VecDeque<Action>,
    events: VecDeque<Event>,
}

/// Number of windows of each port that are kept.
const WINDOWS_KEPT: usize = 8;

impl Controller {
    /// Creates a controller of a fabric. It changes nothing before it is given a lease.
    pub fn new(config: ControllerConfig, fabric: Fabric) -> Self {
        let window = config.alarm.window.max(Duration::from_nanos(1));
        let config = ControllerConfig {
            alarm: AlarmRules { window, ..config.alarm },
            reservations: config.reservations.limited(),
            ..config
        };
        Self {
            telemetry: Telemetry::new(window, WINDOWS_KEPT),
            alarms: Alarms::new(config.alarm.clone()),
            suspects: Suspects::new(config.suspects.clone(), window),
            probes: Probes::new(config.probes.clone()),
            avoided: BTreeSet::new(),
            config,
            fabric,
            epoch: None,
            next_window: None,
            moves: BTreeMap::new(),
            next_id: 1,
            barred: Vec::new(),
            jobs: BTreeMap::new(),
            recorded: Vec::new(),
            reservations: Reservations::default(),
            unread: BTreeSet::new(),
            are_jobs_stale: false,
            episodes: BTreeMap::new(),
            refusals: BTreeMap::new(),
            doubted: BTreeSet::new(),
            stats: Stats::default(),
            actions: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Returns the fabric as last read.
    pub const fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// Returns the current alarms, by port.
    pub const fn alarms(&self) -> &BTreeMap<LinkId, Alarm> {
        self.alarms.raised()
    }

    /// Returns every move that is installed or being applied or undone.
    pub fn moves(&self) -> impl Iterator<Item = &Move> {
        self.moves.values()
    }

    /// Returns the moves that are not to be tried for a while, with the ends of these times.
    pub fn barred(&self) -> &[Barred] {
        &self.barred
    }

    /// Returns the event counts.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the recent port reports.
    pub const fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// Returns the recent samples.
    pub const fn suspects(&self) -> &Suspects {
        &self.suspects
    }

    /// Sets the epoch of the lease; `None` means that it is lost. Without a lease the controller only observes.
    pub fn set_lease(&mut self, epoch: Option<u64>, now: Instant) {
        // A lease that was lost and acquired again between two calls has another epoch.
        let began = epoch.is_some() && self.epoch != epoch;
        self.epoch = epoch;
        if began {
            self.actions.clear();
            // Jobs could not be renewed meanwhile.
            self.jobs.values_mut().for_each(|job| job.renewed = None);
            self.adopt(now);
            self.resume();
        }
    }

    /// Processes a port's counters.
    pub fn handle_report(&mut self, report: PortReport) {
        let result = if report.link.index() < self.fabric.links() {
            self.telemetry.record(report, self.fabric.rate(report.link))
        } else {
            Err(TelemetryError::NoSuchLink(report.link.0))
        };
        let index = self.telemetry.index(report.at);
        self.next_window.get_or_insert(index);
        if let Err(doubt) = result {
            self.doubt(report.link, doubt, report.at);
        }
    }

    /// Processes sampled packets.
    pub fn handle_sample(&mut self, sample: Sample) {
        match self.suspects.record(sample, &self.fabric) {
            Ok(()) => self.record_traffic(&sample),
            Err(doubt) => self.doubt(sample.link, doubt, sample.at),
        }
    }

    /// Processes a router's answer to a change: success, or the reason of a failure, which becomes part of an event's
    /// text. Answers to changes that are not pending are ignored.
    pub fn handle_answer<E: fmt::Display>(&mut self, id: u64, answer: Result<(), E>, now: Instant) {
        let Some(key) = self.key_of(id) else { return };
        let it = self.moves.get_mut(&key).expect("its key was found");
        match (&it.stage, answer) {
            (Stage::Applying { .. }, Ok(())) => {
                it.stage = Stage::Reading { since: now.as_nanos() };
                self.refusals.remove(&key.0);
                self.actions.push_back(Action::Read { router: key.0 });
            }
            (Stage::Undoing { .. }, Ok(())) => {
                self.actions.push_back(Action::Read { router: key.0 })
            }
            (Stage::Applying { .. }, Err(why)) => self.refused(&key, &why, now),
            // The move is still to be undone: the change is sent again when it is overdue.
            (Stage::Undoing { .. }, Err(why)) => {
                let text = format!("refuses to undo {}: {why}", key.1);
                self.emit(EventKind::Refused, Subject::of_move(&key.0, id), text, now);
            }
            _ => {}
        }
    }

    /// Evaluates windows that have ended and probes, repeats overdue requests, and plans flows of jobs whose paths have
    /// changed or lose packets. It may be called before [`Self::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        self.barred.retain(|barred| barred.until > now.as_nanos());
        self.resend_overdue(now);
        self.evaluate_probes(now);
        if self.epoch.is_some() {
            self.expire_jobs(now);
            self.replan_jobs(now);
        }
        let Some(mut index) = self.next_window else { return };
        // After a long pause only the windows that are kept are evaluated.
        let current = self.telemetry.index(now - self.config.grace);
        index = index.max(current.saturating_sub(WINDOWS_KEPT as u64));
        while index < current {
            self.end_window(index, now);
            index += 1;
        }
        self.next_window = Some(index);
    }

    /// Returns the time at which [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let window = self.config.alarm.window.as_nanos();
        let end = self.next_window.map(|index| index.saturating_add(1).saturating_mul(window));
        let end = end.map(|end| Instant::from_nanos(end) + self.config.grace);
        let deadlines = self.moves.values().filter_map(|it| match it.stage {
            Stage::Applying { since } | Stage::Reading { since } | Stage::Undoing { since, .. } => {
                Some(Instant::from_nanos(since) + self.config.answer_within)
            }
            _ => None,
        });
        let leases = self.jobs.values().filter_map(|job| {
            Some(Instant::from_nanos(job.renewed?) + job.lease? + Duration::from_nanos(1))
        });
        let replan = (self.are_jobs_stale && self.epoch.is_some()).then_some(Instant::EPOCH);
        deadlines.chain(end).chain(leases).chain(replan).chain(self.probes.next_evaluation()).min()
    }

    /// Returns the next action for the owner to carry out.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Ends a window: evaluates alarms, verifies moves, then plans moves.
    fn end_window(&mut self, index: u64, now: Instant) {
        let (window, reservations) = (self.config.alarm.window, &self.reservations);
        let pauses = |link, index: u64| {
            let start = Instant::from_nanos(index.saturating_mul(window.as_nanos()));
            reservations.pause(link, start, start + window)
        };
        for change in self.alarms.evaluate(index, &self.telemetry, &self.fabric, pauses) {
            self.on_alarm_change(change, now);
        }
        if self.epoch.is_some() {
            self.verify(index, now);
            self.withdraw_idle(index, now);
        }
        self.watch_jobs(index, now);
        self.reserve(index, now);
        if self.epoch.is_some() {
            self.separate_bursts(now);
        }
        self.plan_rounds(index, now);
        self.suspects.expire(index);
        self.doubted.clear();
    }

    fn on_alarm_change(&mut self, change: Change, now: Instant) {
        let (link, kind, text) = match change {
            Change::Raised(link, alarm) => {
                let text =
                    format!("{} alarm, {} marks in a window", alarm.level.name(), alarm.marks);
                (link, EventKind::Alarm, text)
            }
            Change::Cleared(link, alarm) => {
                let rounds = self.episodes.remove(&link).map_or(0, |episode| episode.rounds);
                let cleared = &mut self.stats.cleared_after[rounds.min(3) as usize];
                *cleared = cleared.saturating_add(1);
                let windows = (alarm.window + 1).saturating_sub(alarm.since);
                (
                    link,
                    EventKind::Cleared,
                    format!("{} alarm over after {windows} windows", alarm.level.name()),
                )
            }
        };
        let (router, port) = self.port_name(link);
        self.emit(kind, Subject { router, port, id: None }, text, now);
    }

    fn doubt(&mut self, link: LinkId, doubt: TelemetryError, at: Instant) {
        self.stats.doubts = self.stats.doubts.saturating_add(1);
        // One event per window and kind is enough, because the sender will repeat the fault.
        if self.doubted.insert((link, doubt.kind())) {
            let (router, port) = self.port_name(link);
            if doubt == TelemetryError::OffPath && !router.is_empty() {
                self.actions.push_back(Action::Read { router: router.clone() });
            }
            let subject = Subject { router, port, id: None };
            self.emit(EventKind::Doubt, subject, format!("{doubt}"), at);
        }
    }

    fn emit(&mut self, kind: EventKind, subject: Subject, text: String, now: Instant) {
        self.stats.count(kind);
        let Subject { router, port, id } = subject;
        self.events.push_back(Event { at: now.as_nanos(), kind, router, port, id, text });
    }

    fn port_name(&self, link: LinkId) -> (String, String) {
        let port =
            (link.index() < self.fabric.links()).then(|| self.fabric.port_of(link)).flatten();
        port.map_or_else(Default::default, |(router, port)| {
            (self.fabric.router(router).name.clone(), port.name.clone())
        })
    }

    fn link(&self, router: &str, port: &str) -> Option<LinkId> {
        self.fabric.link_of_port(self.fabric.find(router)?, port)
    }

    fn key_of(&self, id: u64) -> Option<(String, Prefix)> {
        self.moves.iter().find(|(_, it)| it.id == id).map(|(key, _)| key.clone())
    }
}

/// The subject of an event; empty for an event of the whole fabric.
#[derive(Default)]
struct Subject {
    router: String,
    port: String,
    /// The number of the move.
    id: Option<u64>,
}

impl Subject {
    fn router(name: &str) -> Self {
        Self { router: name.to_owned(), ..Self::default() }
    }

    /// Returns the subject of an event of a move at a router.
    fn of_move(router: &str, id: u64) -> Self {
        Self { id: Some(id), ..Self::router(router) }
    }
}

/// The loads of the last window, with the expected changes of later moves.
struct Estimate<'a> {
    telemetry: &'a Telemetry,
    index: u64,
    expected: &'a BTreeMap<LinkId, i64>,
    /// The reservations for the time in which the moved flows are sent; `None` if that is not known.
    coming: Option<Coming<'a>>,
}

impl Loads for Estimate<'_> {
    fn load(&self, link: LinkId) -> Option<u64> {
        let measured = self.telemetry.window(link, self.index)?.rate();
        let expected = self.expected.get(&link).copied().unwrap_or(0);
        Some(measured.saturating_add_signed(expected))
    }

    fn reserved(&self, link: LinkId) -> u64 {
        self.coming.map_or(0, |coming| coming.peak(link))
    }
}
