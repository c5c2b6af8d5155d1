//! The decisions of a controller that its successor must know, as records that a store keeps for it.
//!
//! A record has a key, so that a change of one move or job is a change of one record: [`Controller::changed_records`]
//! gives changes out, [`Controller::follow_record`] and [`Controller::take_over`] take them in. Records name routers and ports.
//! Measurements are not among them, because each controller has its own: one that stands by gets the reports of routers
//! too, and keeps them when it takes over.

#[cfg(test)]
mod tests;

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Display, Formatter};
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use weft_units::Instant;

use super::job::MAX_FLOWS;
use super::moved::{Barred, Episode};
use super::state::{LAST_WINDOW, fingerprint};
use super::{Controller, Job, JobError, Move, StateError, Stats};
use crate::bursts::Bursts;
use crate::installed::Prefix;

/// The key of a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordKey {
    /// The values that belong to no move and no job: [`Overview`].
    Overview,
    /// A move: its router and its destination.
    Move(String, Prefix),
    /// A job, by its name.
    Job(String),
}

/// A record of a controller's decisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// The values that belong to no move and no job.
    Overview(Overview),
    /// A move.
    Move(Move),
    /// A job.
    Job(PlacedJob),
}

/// A controller's decisions that belong to no move and no job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overview {
    /// The version of the records. A controller takes none of a later version.
    version: u32,
    next_id: u64,
    barred: Vec<Barred>,
    refusals: BTreeMap<String, (u32, u64)>,
    stats: Stats,
    rounds: Vec<PortRounds>,
    /// By job, the bursts for which links are reserved. They are measured anew in every window.
    #[serde(default)]
    bursts: BTreeMap<String, Bursts>,
}

/// The rounds of moves of an alarmed port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PortRounds {
    router: String,
    port: String,
    rounds: u32,
    last_text: String,
}

/// A job, with the fabric to which the link numbers of its planned routes belong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedJob {
    /// A fingerprint of the names of routers and ports.
    fabric: u64,
    job: Job,
}

/// The version of the records that this controller writes, and the latest that it reads.
pub const RECORDS_VERSION: u32 = 1;

/// Upper bound of the numbers of moves, which leaves room for those to come.
const LAST_ID: u64 = 1 << 62;

impl Overview {
    /// Returns the overview of a controller that has decided nothing.
    fn first() -> Self {
        Self { version: RECORDS_VERSION, next_id: 1, ..Self::default() }
    }

    /// Returns the counts of events.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    fn check(&self) -> Result<(), StateError> {
        if self.version > RECORDS_VERSION {
            return Err(StateError::Records { got: self.version, read: RECORDS_VERSION });
        }
        if self.bursts.values().any(|it| !it.is_possible()) {
            return Err(StateError::Damaged("bursts are longer than their period"));
        }
        if self.next_id > LAST_ID {
            return Err(StateError::Damaged("the next move's number is too large"));
        }
        Ok(())
    }
}

impl Record {
    /// Checks that a record can be used under its key.
    ///
    /// # Errors
    /// Returns `Records` for a later version, or `Damaged` or `Jobs` with the contradiction.
    pub fn check(&self, key: &RecordKey) -> Result<(), StateError> {
        match (key, self) {
            (RecordKey::Overview, Self::Overview(it)) => it.check(),
            (RecordKey::Move(router, prefix), Self::Move(it)) => {
                if (&it.router, it.prefix) != (router, *prefix) {
                    return Err(StateError::Damaged("a move is under another one's key"));
                }
                if it.windows().any(|window| window >= LAST_WINDOW) {
                    return Err(StateError::Damaged("a window's number is too large"));
                }
                if it.id >= LAST_ID {
                    return Err(StateError::Damaged("a move's number is too large"));
                }
                Ok(())
            }
            (RecordKey::Job(name), Self::Job(PlacedJob { job, .. })) => {
                Job::check_name(name)?;
                Ok(job.check()?)
            }
            _ => Err(StateError::Damaged("a record is of another kind than its key")),
        }
    }
}

/// The records of the controller before, as its successor has taken them over.
#[derive(Clone, Debug)]
pub struct TakenOver {
    /// The records that the store has and this controller uses, to find later changes.
    pub known: Known,
    /// The records that cannot be used, with the reason. They are neither known nor changed.
    pub unused: Vec<(RecordKey, StateError)>,
}

/// The records that a store has, to find those that have changed.
#[derive(Clone, Debug, Default)]
pub struct Known {
    overview: Overview,
    moves: BTreeMap<(String, Prefix), Move>,
    /// By name, [`Job::stamp`].
    jobs: BTreeMap<String, u64>,
}

/// The error for a text that is no key of a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no key of a route controller's record")]
pub struct RecordKeyError(String);

impl Display for RecordKey {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overview => out.write_str("overview"),
            Self::Move(router, prefix) => write!(out, "moves/{router}/{prefix}"),
            Self::Job(name) => write!(out, "jobs/{name}"),
        }
    }
}

impl FromStr for RecordKey {
    type Err = RecordKeyError;

    fn from_str(text: &str) -> Result<Self, RecordKeyError> {
        let wrong = || RecordKeyError(text.to_owned());
        if text == "overview" {
            return Ok(Self::Overview);
        }
        match text.split_once('/').ok_or_else(wrong)? {
            ("moves", key) => {
                let (router, prefix) = key.split_once('/').ok_or_else(wrong)?;
                let prefix = prefix.parse().map_err(|_| wrong())?;
                Ok(Self::Move(router.to_owned(), prefix))
            }
            ("jobs", name) => {
                Job::check_name(name).map_err(|_| wrong())?;
                Ok(Self::Job(name.to_owned()))
            }
            _ => Err(wrong()),
        }
    }
}

impl Controller {
    /// Returns the records that differ from the `known` ones, `None` for one that is gone, and makes them known. The
    /// overview comes first: a number that a move has is never given to another.
    pub fn changed_records(&self, known: &mut Known) -> Vec<(RecordKey, Option<Record>)> {
        let mut changed = Vec::new();
        let overview = self.overview();
        if overview != known.overview {
            known.overview = overview.clone();
            changed.push((RecordKey::Overview, Some(Record::Overview(overview))));
        }
        let key = |(router, prefix): &(String, Prefix)| RecordKey::Move(router.clone(), *prefix);
        for (at, it) in &self.moves {
            if known.moves.get(at) != Some(it) {
                known.moves.insert(at.clone(), it.clone());
                changed.push((key(at), Some(Record::Move(it.clone()))));
            }
        }
        let gone = known.moves.extract_if(.., |at, _| !self.moves.contains_key(at));
        changed.extend(gone.map(|(at, _)| (key(&at), None)));
        for (name, job) in &self.jobs {
            let stamp = job.stamp();
            if known.jobs.insert(name.clone(), stamp) != Some(stamp) {
                changed.push((RecordKey::Job(name.clone()), Some(self.placed(job))));
            }
        }
        let gone = known.jobs.extract_if(.., |name, _| !self.jobs.contains_key(name));
        changed.extend(gone.map(|(name, _)| (RecordKey::Job(name), None)));
        changed
    }

    fn overview(&self) -> Overview {
        let rounds = self.episodes.values().map(|it| {
            let (router, port) = self.port_name(it.link);
            PortRounds { router, port, rounds: it.rounds, last_text: it.last_text.clone() }
        });
        let bursts = self.jobs.iter().filter_map(|(name, job)| Some((name.clone(), job.bursts?)));
        Overview {
            version: RECORDS_VERSION,
            next_id: self.next_id,
            barred: self.barred.clone(),
            refusals: self.refusals.clone(),
            stats: self.stats,
            rounds: rounds.collect(),
            bursts: bursts.collect(),
        }
    }

    fn placed(&self, job: &Job) -> Record {
        Record::Job(PlacedJob { fabric: fingerprint(&self.fabric), job: job.clone() })
    }

    /// Takes a record of the controller that steers, or learns that it is gone. The measurements of this controller stay.
    ///
    /// # Errors
    /// Returns the reason if the record cannot be used; then nothing has changed.
    pub fn follow_record(
        &mut self,
        key: &RecordKey,
        record: Option<Record>,
    ) -> Result<(), StateError> {
        self.take(key, record)?;
        if !matches!(key, RecordKey::Move(..)) {
            self.reserve_known();
        }
        Ok(())
    }

    /// Takes all records of the controller before, in place of its own decisions. A record that cannot be used is left out. The
    /// measurements of this controller stay.
    pub fn take_over(
        &mut self,
        records: impl IntoIterator<Item = (RecordKey, Record)>,
    ) -> TakenOver {
        self.moves.clear();
        let mut before = core::mem::take(&mut self.jobs);
        let (mut overview, mut unused) = (None, Vec::new());
        for (key, record) in records {
            // The overview names jobs, which come first.
            if key == RecordKey::Overview {
                overview = Some(record);
                continue;
            }
            if let RecordKey::Job(name) = &key
                && let Some(job) = before.remove(name)
            {
                // What this controller has sampled of the job stays.
                self.jobs.insert(name.clone(), Job { flows: Vec::new(), ..job });
            }
            if let Err(error) = self.take(&key, Some(record)) {
                if let RecordKey::Job(name) = &key {
                    self.jobs.remove(name);
                }
                unused.push((key, error));
            }
        }
        let mut is_known = overview.is_some();
        if let Err(error) = self.take(&RecordKey::Overview, overview) {
            is_known = false;
            unused.push((RecordKey::Overview, error));
            self.follow_overview(Overview::first());
        }
        self.reserve_known();
        // Without the overview, the numbers of the moves that are left say which are taken.
        let taken = self.moves.values().map(|it| it.id.saturating_add(1)).max();
        self.next_id = self.next_id.max(taken.unwrap_or_default());
        let mut known = Known::default();
        self.changed_records(&mut known);
        if !is_known {
            known.overview = Overview::default();
        }
        TakenOver { known, unused }
    }

    fn take(&mut self, key: &RecordKey, record: Option<Record>) -> Result<(), StateError> {
        record.as_ref().map_or(Ok(()), |it| it.check(key))?;
        match (key, record) {
            (RecordKey::Overview, Some(Record::Overview(it))) => self.follow_overview(it),
            (RecordKey::Overview, None) => self.follow_overview(Overview::first()),
            (RecordKey::Move(router, prefix), Some(Record::Move(it))) => {
                self.moves.insert((router.clone(), *prefix), it);
            }
            (RecordKey::Move(router, prefix), None) => {
                self.moves.remove(&(router.clone(), *prefix));
            }
            (RecordKey::Job(name), Some(Record::Job(job))) => self.follow_job(name, job)?,
            (RecordKey::Job(name), None) => {
                self.jobs.remove(name);
            }
            _ => return Err(StateError::Damaged("a record is of another kind than its key")),
        }
        Ok(())
    }

    fn follow_overview(&mut self, it: Overview) {
        for (name, job) in &mut self.jobs {
            job.bursts = it.bursts.get(name).copied();
        }
        let episodes = it.rounds.into_iter().filter_map(|it| {
            let link = self.link(&it.router, &it.port)?;
            Some((link, Episode { link, rounds: it.rounds, last_text: it.last_text }))
        });
        self.episodes = episodes.collect();
        self.next_id = it.next_id;
        self.barred = it.barred;
        self.refusals = it.refusals;
        self.stats = it.stats;
    }

    fn follow_job(
        &mut self,
        name: &str,
        PlacedJob { fabric, mut job }: PlacedJob,
    ) -> Result<(), StateError> {
        let others = self.jobs.iter().filter(|(other, _)| *other != name);
        let others = others.map(|(_, job)| job.flows.len()).sum::<usize>();
        if job.flows.len().saturating_add(others) > MAX_FLOWS {
            return Err(JobError::TooMany { flows: job.flows.len(), others }.into());
        }
        if fabric != fingerprint(&self.fabric) {
            job.routes.clear();
        }
        // An announcement counts as a sample, and what this controller has sampled of the job stays.
        job.seen = Some(self.telemetry.index(Instant::from_nanos(job.announced)));
        if let Some(before) = self.jobs.remove(name) {
            (job.traffic, job.bursts) = (before.traffic, before.bursts);
            job.seen = job.seen.max(before.seen);
        }
        self.jobs.insert(name.to_owned(), job);
        self.are_jobs_stale = true;
        Ok(())
    }
}
