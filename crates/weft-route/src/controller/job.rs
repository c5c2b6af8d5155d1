//! Jobs that were announced: what they will send counts before it is measured.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use serde::{Deserialize, Serialize};
use weft_units::{BitRate, Instant};

use super::{Controller, What};
use crate::fabric::LinkId;
use crate::flow::Flow;
use crate::path::Start;

/// One flow that a job will have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The sender's address.
    pub src: IpAddr,
    /// By which of the sender's links; none for a host that has one.
    pub first: Option<LinkId>,
    /// The receiver's address, of the same family.
    pub dst: IpAddr,
    /// What it will send in a second.
    pub rate: BitRate,
    /// The source port that was planned for it, which it keeps where that will do.
    pub port: Option<u16>,
}

/// A job, from when it is announced to when it is withdrawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// When, in nanoseconds.
    pub announced: u64,
    /// Whether packets of it were sampled since.
    pub begun: bool,
    /// How full its fullest link was to be, in thousandths.
    pub fullest: u32,
    /// Its flows, in order of their five-tuples.
    pub flows: Vec<JobFlow>,
    /// The last window in which it was sampled; none since a restart.
    #[serde(skip)]
    pub(super) seen: Option<u64>,
}

/// A job's flow, with the port that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobFlow {
    /// The flow.
    pub flow: Flow,
    /// By which of its sender's cables, in the order of the fabric's links.
    pub cable: u32,
    /// What it sends in a second.
    pub rate: BitRate,
}

/// Why a job's ports cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// A name that cannot be one.
    #[error("{0:?} is no job's name: 1 to {LONGEST_NAME} letters, digits and any of -_.:/@")]
    Name(String),
    /// Nothing to plan.
    #[error("a job without flows has no ports")]
    Empty,
    /// More than a controller keeps.
    #[error("{flows} flows beside the {others} of other jobs; a controller keeps {MOST_FLOWS}")]
    TooMany {
        /// What it has.
        flows: usize,
        /// What jobs have that were announced before.
        others: usize,
    },
    /// It was not announced, or has been withdrawn or forgotten.
    #[error("no job {name:?}; there are {}", list(known))]
    Unknown {
        /// The name.
        name: String,
        /// Some of those that there are.
        known: Vec<String>,
    },
    /// A sender that the fabric does not have, or that has several links.
    #[error("flow {flow}: {address} is no host of the fabric, or has several links and names none")]
    Sender {
        /// Its place in the job.
        flow: usize,
        /// The sender.
        address: IpAddr,
    },
    /// Between addresses of different families.
    #[error("flow {flow}: {} and {} are of different families", pair.src, pair.dst)]
    Families {
        /// Its place in the job.
        flow: usize,
        /// The flow.
        pair: Pair,
    },
    /// A flow that arrives by no port.
    #[error("flow {flow}: {outcome}")]
    NoWay {
        /// Its place in the job.
        flow: usize,
        /// How its path ends.
        outcome: String,
    },
    /// Jobs of an earlier run that contradict themselves.
    #[error("what is kept of jobs is damaged: {0}")]
    Damaged(&'static str),
}

/// Flows of all jobs together: those of a cluster of 262,144 GPUs with four each.
pub(super) const MOST_FLOWS: usize = 1 << 20;
const LONGEST_NAME: usize = 128;
/// Of larger jobs, so many flows are looked for among what was sampled.
const LOOKED_FOR: usize = 4096;

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

impl Job {
    /// Whether a job may be called so.
    ///
    /// # Errors
    /// `Name`.
    pub fn check_name(name: &str) -> Result<(), JobError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@".contains(&byte);
        let is_name = (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(fits);
        if is_name { Ok(()) } else { Err(JobError::Name(name.to_owned())) }
    }
}

impl Controller {
    /// Every job that was announced and not withdrawn, by name.
    pub const fn jobs(&self) -> &BTreeMap<String, Job> {
        &self.jobs
    }

    /// A job has ended: its flows no longer count. Gives how many there were.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn withdraw(&mut self, name: &str, now: Instant) -> Result<usize, JobError> {
        let Some(job) = self.jobs.remove(name) else {
            let known = self.jobs.keys().take(8).cloned().collect();
            return Err(JobError::Unknown { name: name.to_owned(), known });
        };
        let count = job.flows.len();
        self.say(What::Job, "", "", None, format!("{name} withdrawn, {count} flows"), now);
        Ok(count)
    }

    /// Takes up the jobs of an earlier run.
    ///
    /// # Errors
    /// `Name`, `TooMany` or `Damaged`; then nothing is taken up.
    pub fn restore_jobs(&mut self, jobs: BTreeMap<String, Job>) -> Result<(), JobError> {
        jobs.keys().try_for_each(|name| Job::check_name(name))?;
        let flows = jobs.values().fold(0usize, |sum, job| sum.saturating_add(job.flows.len()));
        if flows > MOST_FLOWS {
            return Err(JobError::TooMany { flows, others: 0 });
        }
        if jobs.values().any(|job| !job.flows.is_sorted_by_key(|it| it.flow)) {
            return Err(JobError::Damaged("a job's flows are out of order"));
        }
        self.jobs = jobs;
        Ok(())
    }

    /// Looks which jobs' packets were sampled, and forgets those of which none was for long: whoever announced them has
    /// ended without a word.
    pub(super) fn watch_jobs(&mut self, index: u64, now: Instant) {
        let mut jobs = core::mem::take(&mut self.jobs);
        let span = self.config.alarm.windows(self.config.forget);
        // Where nothing at all is sampled, that says nothing about jobs.
        let is_silent = self.suspects.tallies().is_empty();
        jobs.retain(|name, job| {
            let last = self.last_sampled(job);
            job.begun |= last.is_some();
            let seen = if is_silent { Some(index) } else { last };
            let seen = *job.seen.insert(seen.or(job.seen).unwrap_or(index));
            let is_gone = index.saturating_sub(seen) > span;
            if is_gone {
                let text =
                    format!("{name} forgotten: nothing of it was sampled for {span} windows");
                self.say(What::Job, "", "", None, text, now);
            }
            !is_gone
        });
        self.jobs = jobs;
    }

    /// A window in which a job's packets were sampled lately; none where none were.
    fn last_sampled(&self, job: &Job) -> Option<u64> {
        let some = job.flows.iter().step_by(job.flows.len() / LOOKED_FOR + 1);
        some.filter_map(|it| {
            let path = self.fabric.path_from(self.start_of(it)?, &it.flow);
            path.links().iter().find_map(|&link| self.suspects.last_sampled(link, it.flow))
        })
        .next()
    }

    /// Where a job's flow begins; nowhere, where its sender has gone or has fewer cables than it had.
    pub(super) fn start_of(&self, it: &JobFlow) -> Option<Start> {
        let links = self.fabric.links_of_host(self.fabric.host(it.flow.src())?);
        links.get(it.cable as usize).copied().map(Start::Link)
    }
}
