//! Announced jobs: their load counts before it is measured.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use serde::{Deserialize, Serialize};
use weft_units::{BitRate, Duration, Instant};

use super::{Controller, EventKind, Subject};
use crate::bursts::{Bursts, Traffic};
use crate::fabric::LinkId;
use crate::flow::Flow;
use crate::path::Start;

/// One flow that a job will have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The sender's address.
    pub src: IpAddr,
    /// The link on which the sender sends; none for a host with one link.
    pub first: Option<LinkId>,
    /// The receiver's address, of the same family.
    pub dst: IpAddr,
    /// The rate at which it will send.
    pub rate: BitRate,
    /// The source port planned before, which it keeps if its path is not too full.
    pub port: Option<u16>,
}

/// A job, from its announcement to its withdrawal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The time of the announcement, in nanoseconds.
    pub announced: u64,
    /// `true` if packets of the job were sampled since.
    pub begun: bool,
    /// The expected utilisation of its fullest link, in thousandths.
    pub fullest: u32,
    /// Number of times that its ports were planned. A job of an older state file has none.
    #[serde(default)]
    pub version: u64,
    /// The time after the last renewal at which it counts as ended; none for a job that is never renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Duration>,
    /// Its flows, in order of their five-tuples.
    pub flows: Vec<JobFlow>,
    /// The bursts found in its traffic; none if it is not periodic, or not known for long enough.
    #[serde(skip)]
    pub bursts: Option<Bursts>,
    /// By flow, a number of the path on which its port was planned (`replan.rs`), in the link numbers of one fabric; none
    /// if that was another fabric.
    #[serde(default)]
    pub(super) routes: Vec<u64>,
    /// The time of the last renewal in nanoseconds; none since a restart or a change of the controller.
    #[serde(skip)]
    pub(super) renewed: Option<u64>,
    /// The last window in which the job was sampled; none if it is not known.
    #[serde(skip)]
    pub(super) seen: Option<u64>,
    /// Its sampled traffic, as far as it is known.
    #[serde(skip)]
    pub(super) traffic: Traffic,
    /// The time in nanoseconds from which flows may be planned again because of coinciding bursts.
    #[serde(default)]
    pub(super) separate_from: u64,
}

/// A job's flow with its assigned port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobFlow {
    /// The flow.
    pub flow: Flow,
    /// The index of its sender's cable, in the order of the fabric's links.
    pub cable: u32,
    /// The rate at which it sends.
    pub rate: BitRate,
}

/// The reason why a job's ports cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// An invalid name.
    #[error("{0:?} is no job's name: 1 to {MAX_NAME_LEN} letters, digits and any of -_.:/@")]
    Name(String),
    /// A job without flows.
    #[error("a job without flows has no ports")]
    Empty,
    /// More flows than a controller keeps.
    #[error("{flows} flows beside the {others} of other jobs; a controller keeps {MAX_FLOWS}")]
    TooMany {
        /// Number of flows of the job.
        flows: usize,
        /// Number of flows of jobs announced before.
        others: usize,
    },
    /// The job was not announced, or was withdrawn or discarded.
    #[error("no job {name:?}; there are {}", list(known))]
    Unknown {
        /// The name.
        name: String,
        /// Some of the known jobs.
        known: Vec<String>,
    },
    /// A sender that the fabric does not have, or that has several links and names none.
    #[error("flow {flow}: {address} is no host of the fabric, or has several links and names none")]
    Sender {
        /// The flow's index in the job.
        flow: usize,
        /// The sender.
        address: IpAddr,
    },
    /// A flow between addresses of different families.
    #[error("flow {flow}: {} and {} are of different families", pair.src, pair.dst)]
    Families {
        /// The flow's index in the job.
        flow: usize,
        /// The flow.
        pair: Pair,
    },
    /// A flow that arrives with none of the tried ports.
    #[error("flow {flow}: {outcome}")]
    NoWay {
        /// The flow's index in the job.
        flow: usize,
        /// The outcome of its path, in words.
        outcome: String,
    },
    /// Saved jobs that contradict themselves.
    #[error("the saved jobs are damaged: {0}")]
    Damaged(&'static str),
}

/// Maximum number of flows of all jobs together: a cluster of 262,144 GPUs with four flows each.
pub(super) const MAX_FLOWS: usize = 1 << 20;
const MAX_NAME_LEN: usize = 128;
/// Maximum number of a job's flows that are looked up among the samples.
const MAX_FLOWS_LOOKED_UP: usize = 4096;

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

impl Job {
    /// Returns a job without flows.
    pub(crate) fn empty() -> Self {
        Self {
            announced: 0,
            begun: false,
            fullest: 0,
            version: 1,
            lease: None,
            flows: Vec::new(),
            bursts: None,
            routes: Vec::new(),
            renewed: None,
            seen: None,
            traffic: Traffic::default(),
            separate_from: 0,
        }
    }

    /// Returns a number that no other plan of a job of this name has, also of one announced after a restart.
    pub const fn plan(&self) -> u64 {
        self.announced.wrapping_add(self.version)
    }

    /// Checks that a name is valid for a job.
    ///
    /// # Errors
    /// Returns [`JobError::Name`] if it is not valid.
    pub fn check_name(name: &str) -> Result<(), JobError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@".contains(&byte);
        let is_name = (1..=MAX_NAME_LEN).contains(&name.len()) && name.bytes().all(fits);
        if is_name { Ok(()) } else { Err(JobError::Name(name.to_owned())) }
    }

    /// Checks saved jobs.
    ///
    /// # Errors
    /// Returns `Name`, `TooMany` or `Damaged`.
    pub fn check_all(jobs: &BTreeMap<String, Self>) -> Result<(), JobError> {
        jobs.keys().try_for_each(|name| Self::check_name(name))?;
        let flows = jobs.values().fold(0usize, |sum, job| sum.saturating_add(job.flows.len()));
        if flows > MAX_FLOWS {
            return Err(JobError::TooMany { flows, others: 0 });
        }
        jobs.values().try_for_each(Self::check)
    }

    /// Checks that saved flows are in order, and that each has a route or none has.
    ///
    /// # Errors
    /// Returns `Damaged`.
    pub(super) fn check(&self) -> Result<(), JobError> {
        if !self.flows.is_sorted_by_key(|it| it.flow) {
            return Err(JobError::Damaged("a job's flows are out of order"));
        }
        if ![0, self.flows.len()].contains(&self.routes.len()) {
            return Err(JobError::Damaged("a job has not as many routes as flows"));
        }
        Ok(())
    }

    /// Returns a number that changes with what is saved of the job. Flows change only with the version.
    pub fn stamp(&self) -> u64 {
        let add = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x100_0000_01b3);
        let lease = self.lease.map_or(0, Duration::as_nanos);
        let words = [
            self.announced,
            self.version,
            u64::from(self.begun),
            u64::from(self.fullest),
            lease,
            self.separate_from,
            self.flows.len() as u64,
        ];
        let words = words.into_iter().chain(self.routes.iter().copied());
        words.fold(0xcbf2_9ce4_8422_2325, add)
    }
}

impl Controller {
    /// Returns the announced jobs, by name.
    pub const fn jobs(&self) -> &BTreeMap<String, Job> {
        &self.jobs
    }

    /// Removes a job that has ended, so that its flows no longer count. Returns the number of its flows.
    ///
    /// # Errors
    /// Returns [`JobError::Unknown`].
    pub fn withdraw(&mut self, name: &str, now: Instant) -> Result<usize, JobError> {
        let job = self.jobs.remove(name).ok_or_else(|| self.unknown(name))?;
        self.reservations.release(name);
        let count = job.flows.len();
        let text = format!("{name} withdrawn, {count} flows");
        self.emit(EventKind::Job, Subject::default(), text, now);
        Ok(count)
    }

    /// Makes a job end when it is not renewed for this time, or keeps it without renewals.
    ///
    /// # Errors
    /// Returns [`JobError::Unknown`].
    pub fn set_job_lease(
        &mut self,
        name: &str,
        lease: Option<Duration>,
        now: Instant,
    ) -> Result<(), JobError> {
        self.renew_job(name, now)?;
        self.jobs.get_mut(name).expect("it was renewed").lease = lease;
        Ok(())
    }

    /// Renews the lease of a job, and returns the job with its present ports.
    ///
    /// # Errors
    /// Returns [`JobError::Unknown`] if it was never announced, or has ended.
    pub fn renew_job(&mut self, name: &str, now: Instant) -> Result<&Job, JobError> {
        if !self.jobs.contains_key(name) {
            return Err(self.unknown(name));
        }
        let job = self.jobs.get_mut(name).expect("it was found");
        job.renewed = Some(now.as_nanos());
        Ok(job)
    }

    fn unknown(&self, name: &str) -> JobError {
        let known = self.jobs.keys().take(8).cloned().collect();
        JobError::Unknown { name: name.to_owned(), known }
    }

    /// Removes jobs whose lease has expired: their ranks ended without a withdrawal.
    pub(super) fn expire_jobs(&mut self, now: Instant) {
        let is_over = |job: &mut Job| {
            let renewed = *job.renewed.get_or_insert(now.as_nanos());
            job.lease.is_some_and(|lease| now.since(Instant::from_nanos(renewed)) > lease)
        };
        let over: Vec<String> = self
            .jobs
            .iter_mut()
            .filter_map(|(name, job)| is_over(job).then(|| name.clone()))
            .collect();
        for name in over {
            let job = self.jobs.remove(&name).expect("its name was found");
            self.reservations.release(&name);
            let (count, lease) = (job.flows.len(), job.lease.unwrap_or_default());
            let text = format!("{name} ended, {count} flows: it was not renewed for {lease}");
            self.emit(EventKind::Job, Subject::default(), text, now);
        }
    }

    /// Restores the jobs of an earlier run. Their planned routes count only if the fabric is that of the state with which
    /// they are restored ([`Self::restore`]).
    ///
    /// # Errors
    /// Returns `Name`, `TooMany` or `Damaged`; then nothing has changed.
    pub fn restore_jobs(&mut self, mut jobs: BTreeMap<String, Job>) -> Result<(), JobError> {
        Job::check_all(&jobs)?;
        jobs.values_mut().for_each(|job| job.routes.clear());
        self.set_jobs(jobs);
        Ok(())
    }

    /// Replaces all jobs, which were checked, and reserves links for their bursts.
    pub(super) fn set_jobs(&mut self, jobs: BTreeMap<String, Job>) {
        self.jobs = jobs;
        self.reserve_known();
        self.are_jobs_stale = true;
    }

    /// Marks jobs that were sampled as begun, and discards jobs that were not sampled for long, because their owners
    /// ended without a withdrawal.
    pub(super) fn watch_jobs(&mut self, index: u64, now: Instant) {
        let mut jobs = core::mem::take(&mut self.jobs);
        let span = self.config.alarm.windows(self.config.forget);
        // If there are no samples at all, the absence of a job's samples means nothing.
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
                self.reservations.release(name);
                self.emit(EventKind::Job, Subject::default(), text, now);
            }
            !is_gone
        });
        self.jobs = jobs;
    }

    /// Returns a recent window in which a job's packets were sampled, if there is one.
    fn last_sampled(&self, job: &Job) -> Option<u64> {
        let flows = job.flows.iter().step_by(job.flows.len() / MAX_FLOWS_LOOKED_UP + 1);
        flows
            .filter_map(|it| {
                let path = self.fabric.path_from(self.start_of(it)?, &it.flow);
                path.links().iter().find_map(|&link| self.suspects.last_sampled(link, it.flow))
            })
            .next()
    }

    /// Returns the start of a flow's path; `None` if its sender is gone or has fewer cables than before.
    pub(super) fn start_of(&self, it: &JobFlow) -> Option<Start> {
        let links = self.fabric.links_of_host(self.fabric.host(it.flow.src())?);
        links.get(it.cable as usize).copied().map(Start::Link)
    }
}
