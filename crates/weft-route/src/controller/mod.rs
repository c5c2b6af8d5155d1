//! The controller: alarms in, changes of routes out, each of them looked after until it has helped
//! or is undone.
//!
//! The owner moves bytes and tells the time; the controller decides. In: [`handle_report`],
//! [`handle_sample`], [`handle_tables`], [`handle_answer`], [`handle_timeout`], [`set_lease`]. Out:
//! [`poll_action`], [`poll_event`], [`poll_timeout`].
//!
//! A move goes *applying → reading → verifying → kept*, or from anywhere to *undoing*. It is verified
//! twice: the tables that were read back must lead its flows where they should go without filling a
//! link, and in the next whole window the links concerned must mark less of what they carry. What had
//! to be undone is not tried again for a while, and a port gets at most ten rounds an alarm.
//!
//! [`handle_report`]: Controller::handle_report
//! [`handle_sample`]: Controller::handle_sample
//! [`handle_tables`]: Controller::handle_tables
//! [`handle_answer`]: Controller::handle_answer
//! [`handle_timeout`]: Controller::handle_timeout
//! [`set_lease`]: Controller::set_lease
//! [`poll_action`]: Controller::poll_action
//! [`poll_event`]: Controller::poll_event
//! [`poll_timeout`]: Controller::poll_timeout

mod action;
mod announce;
mod job;
mod moved;
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

pub use action::{Action, Event, Stats, What};
pub use announce::Announced;
pub use job::{Job, JobError, JobFlow, Pair};
use moved::{Barred, Episode};
pub use moved::{Carried, Move, Stage};
use serde::{Deserialize, Serialize};
pub use state::{State, StateError};
use weft_units::{Duration, Instant};

use crate::alarm::{Alarm, AlarmRules, Alarms, Change};
use crate::fabric::{Fabric, LinkId};
use crate::installed::Prefix;
use crate::loads::Loads;
use crate::moves::MoveRules;
use crate::suspects::{Sample, SuspectRules, Suspects};
use crate::telemetry::{Doubt, PortReport, Telemetry};

/// What a controller does when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ControllerConfig {
    /// When there is an alarm.
    pub alarm: AlarmRules,
    /// Who is suspected.
    pub suspects: SuspectRules,
    /// Where flows may go.
    pub moves: MoveRules,
    /// Rounds of moves for one alarm of one port, at most. Most alarms are over after one or two; a port with
    /// dozens of small flows needs more.
    pub rounds: u32,
    /// Moves off a port in one round, at most; and flows that are tried in vain.
    pub per_round: usize,
    /// How long after a window's end its reports may still come.
    pub grace: Duration,
    /// How long a router may take to answer.
    pub answer_within: Duration,
    /// How long a router's route to a destination, and the flows that it moved, stay as they are, unless it is undone.
    pub hold: Duration,
    /// How long none of a move's flows may be seen before its route is taken away.
    pub idle: Duration,
    /// How long a move that was undone or refused is not tried again.
    pub bar: Duration,
    /// How long none of an announced job's flows may be sampled, while others are, before it is taken for ended.
    pub forget: Duration,
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self {
            alarm: AlarmRules::default(),
            suspects: SuspectRules::default(),
            moves: MoveRules::default(),
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
    /// The lease's epoch, while it is held.
    epoch: Option<u64>,
    /// The first window that has not been looked at.
    next_window: Option<u64>,
    /// At most one for each router and prefix.
    moves: BTreeMap<(String, Prefix), Move>,
    next_id: u64,
    barred: Vec<Barred>,
    /// Jobs that were announced, by name.
    jobs: BTreeMap<String, Job>,
    /// Ports with an alarm that had rounds.
    episodes: BTreeMap<LinkId, Episode>,
    /// Changes that a router refused since it last took one, and until when it is left alone.
    refusals: BTreeMap<String, (u32, u64)>,
    /// Doubts that were told in this window.
    doubted: BTreeSet<(LinkId, &'static str)>,
    stats: Stats,
    actions: VecDeque<Action>,
    events: VecDeque<Event>,
}

/// Windows of each port that are remembered.
const REMEMBERED: usize = 8;

impl Controller {
    /// A controller of a fabric, which does nothing before it is given a lease.
    pub fn new(config: ControllerConfig, fabric: Fabric) -> Self {
        let window = config.alarm.window.max(Duration::from_nanos(1));
        let config = ControllerConfig { alarm: AlarmRules { window, ..config.alarm }, ..config };
        Self {
            telemetry: Telemetry::new(window, REMEMBERED),
            alarms: Alarms::new(config.alarm.clone()),
            suspects: Suspects::new(config.suspects.clone(), window),
            config,
            fabric,
            epoch: None,
            next_window: None,
            moves: BTreeMap::new(),
            next_id: 1,
            barred: Vec::new(),
            jobs: BTreeMap::new(),
            episodes: BTreeMap::new(),
            refusals: BTreeMap::new(),
            doubted: BTreeSet::new(),
            stats: Stats::default(),
            actions: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// The fabric as last read.
    pub const fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// Alarms that last, by port.
    pub const fn alarms(&self) -> &BTreeMap<LinkId, Alarm> {
        self.alarms.raised()
    }

    /// Every move that is installed or on its way.
    pub fn moves(&self) -> impl Iterator<Item = &Move> {
        self.moves.values()
    }

    /// How often what happened.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What ports reported.
    pub const fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// What was sampled.
    pub const fn suspects(&self) -> &Suspects {
        &self.suspects
    }

    /// The epoch of the lease, or that it is gone. Without one the controller watches only.
    pub fn set_lease(&mut self, epoch: Option<u64>, now: Instant) {
        let began = self.epoch.is_none() && epoch.is_some();
        self.epoch = epoch;
        if began {
            self.actions.clear();
            self.adopt(now);
            self.resume();
        }
    }

    /// A port's counters.
    pub fn handle_report(&mut self, report: PortReport) {
        let result = if report.link.index() < self.fabric.links() {
            self.telemetry.record(report, self.fabric.rate(report.link))
        } else {
            Err(Doubt::NoSuchLink(report.link.0))
        };
        let index = self.telemetry.index(report.at);
        self.next_window.get_or_insert(index);
        if let Err(doubt) = result {
            self.doubt(report.link, doubt, report.at);
        }
    }

    /// Sampled packets.
    pub fn handle_sample(&mut self, sample: Sample) {
        if let Err(doubt) = self.suspects.record(sample, &self.fabric) {
            self.doubt(sample.link, doubt, sample.at);
        }
    }

    /// A router's answer to a change: that it was done, or why not. Answers to changes that nobody
    /// waits for are ignored.
    pub fn handle_answer(&mut self, id: u64, answer: Result<(), String>, now: Instant) {
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
            // What is to be undone stays so: it will be told again.
            (Stage::Undoing { .. }, Err(why)) => {
                let text = format!("refuses to undo {}: {why}", key.1);
                self.say(What::Refused, &key.0, "", Some(id), text, now);
            }
            _ => {}
        }
    }

    /// Time has passed: at [`Self::poll_timeout`] or whenever.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.barred.retain(|barred| barred.until > now.as_nanos());
        self.remind(now);
        let Some(mut index) = self.next_window else { return };
        // After a long sleep only the windows that are remembered are looked at.
        let current = self.telemetry.index(now - self.config.grace);
        index = index.max(current.saturating_sub(REMEMBERED as u64));
        while index < current {
            self.end_window(index, now);
            index += 1;
        }
        self.next_window = Some(index);
    }

    /// When [`Self::handle_timeout`] is to be called at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let window = self.config.alarm.window.as_nanos();
        let end = self.next_window.map(|index| index.saturating_add(1).saturating_mul(window));
        let end = end.map(|end| Instant::from_nanos(end) + self.config.grace);
        let waits = self.moves.values().filter_map(|it| match it.stage {
            Stage::Applying { since } | Stage::Reading { since } | Stage::Undoing { since, .. } => {
                Some(Instant::from_nanos(since) + self.config.answer_within)
            }
            _ => None,
        });
        waits.chain(end).min()
    }

    /// What is to be done next.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// What has happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// A window is over: alarms, then what was moved, then what to move.
    fn end_window(&mut self, index: u64, now: Instant) {
        for change in self.alarms.evaluate(index, &self.telemetry, &self.fabric) {
            self.tell(change, now);
        }
        if self.epoch.is_some() {
            self.verify(index, now);
            self.withdraw_idle(index, now);
        }
        self.watch_jobs(index, now);
        self.plan_rounds(index, now);
        self.suspects.expire(index);
        self.doubted.clear();
    }

    fn tell(&mut self, change: Change, now: Instant) {
        let (link, what, text) = match change {
            Change::Raised(link, alarm) => {
                let text =
                    format!("{} alarm, {} marks in a window", alarm.level.name(), alarm.marks);
                (link, What::Alarm, text)
            }
            Change::Cleared(link, alarm) => {
                let rounds = self.episodes.remove(&link).map_or(0, |episode| episode.rounds);
                let cleared = &mut self.stats.cleared_after[rounds.min(3) as usize];
                *cleared = cleared.saturating_add(1);
                let windows = (alarm.window + 1).saturating_sub(alarm.since);
                (
                    link,
                    What::Cleared,
                    format!("{} alarm over after {windows} windows", alarm.level.name()),
                )
            }
        };
        let (router, port) = self.port_name(link);
        self.say(what, &router, &port, None, text, now);
    }

    fn doubt(&mut self, link: LinkId, doubt: Doubt, at: Instant) {
        self.stats.doubts = self.stats.doubts.saturating_add(1);
        // Once a window is enough: whatever sends this will send it again.
        if self.doubted.insert((link, doubt.kind())) {
            let (router, port) = self.port_name(link);
            if doubt == Doubt::OffPath && !router.is_empty() {
                self.actions.push_back(Action::Read { router: router.clone() });
            }
            self.say(What::Doubt, &router, &port, None, format!("{doubt}"), at);
        }
    }

    fn say(
        &mut self,
        what: What,
        router: &str,
        port: &str,
        id: Option<u64>,
        text: String,
        now: Instant,
    ) {
        self.stats.count(what);
        let (router, port) = (router.to_owned(), port.to_owned());
        self.events.push_back(Event { at: now.as_nanos(), what, router, port, id, text });
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

/// Loads of the last window, with what moves since then will change.
struct Estimate<'a> {
    telemetry: &'a Telemetry,
    index: u64,
    expected: &'a BTreeMap<LinkId, i64>,
}

impl Loads for Estimate<'_> {
    fn load(&self, link: LinkId) -> Option<u64> {
        let measured = self.telemetry.window(link, self.index)?.rate();
        let expected = self.expected.get(&link).copied().unwrap_or(0);
        Some(measured.saturating_add_signed(expected))
    }
}
