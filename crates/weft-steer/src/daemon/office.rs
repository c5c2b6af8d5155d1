//! The office of a controller among those that share a store: it follows the leader, takes over, or leads.
//!
//! A controller that is elected takes the decisions of the leader before from the store, has every router grant it the lease
//! of its term, and reads the router's tables after that: orders of earlier terms are refused from then on, and the tables
//! show those that were carried out. Then it steers.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use weft_route::{Known, Record, RecordKey, StateError, TakenOver};
use weft_units::{Duration, Instant};

use super::store::{Decisions, News, Term};
use super::worker::Job;
use super::{Daemon, RequestError};
use crate::lease;

/// The role of a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It shares no store with others.
    #[default]
    Alone,
    /// Another controller leads, or none does.
    StandsBy,
    /// It was elected and waits for routers.
    TakesOver,
    /// It leads.
    Leads,
}

/// The office of a controller.
#[derive(Debug)]
pub(super) enum Office {
    /// It shares no store: the leases of routers alone decide whether it steers.
    Alone,
    StandsBy,
    TakesOver {
        term: Term,
        begun: Instant,
        /// The routers whose tables were not read since they granted the lease of this term, with the time of the grant.
        unread: BTreeMap<String, Option<Instant>>,
    },
    Leads(Term),
}

/// The time for which an elected controller waits for tables before it steers the routers that it has read.
const READ_TIMEOUT: Duration = Duration::from_millis(2500);

impl Office {
    pub(super) const fn role(&self) -> Role {
        match self {
            Self::Alone => Role::Alone,
            Self::StandsBy => Role::StandsBy,
            Self::TakesOver { .. } => Role::TakesOver,
            Self::Leads(_) => Role::Leads,
        }
    }

    const fn term(&self) -> Option<&Term> {
        match self {
            Self::TakesOver { term, .. } | Self::Leads(term) => Some(term),
            Self::Alone | Self::StandsBy => None,
        }
    }
}

impl Daemon {
    /// Returns the epoch under which this controller may steer, if it may.
    pub(super) fn epoch(&self, now: Instant) -> Option<u64> {
        let may_steer = match &self.office {
            Office::Alone => true,
            Office::Leads(term) => term.lease.is_valid(),
            Office::StandsBy | Office::TakesOver { .. } => false,
        };
        self.leases.epoch(now).filter(|_| may_steer)
    }

    /// Returns the error for a request that only the controller that steers answers.
    pub(super) fn watches(&self) -> RequestError {
        let leader = self.leader.as_ref().filter(|it| it.holder != self.leases.holder());
        let other = leader.map(|it| it.holder.clone()).or_else(|| self.leases.other.clone());
        RequestError::Watches { other, url: leader.map(|it| it.url.clone()) }
    }

    /// Processes what has happened in the store.
    pub(super) fn poll_store(&mut self, now: Instant) {
        while let Some(news) = self.store.poll() {
            match news {
                News::Leader(leader) => self.leader = leader,
                News::Kept(number) => self.kept = number,
                News::Fault(fault) => self.on_fault(fault),
                News::Unreadable(records) => self.on_unreadable(records),
                News::All(decisions) => self.follow_all(decisions),
                News::Changed(records) => {
                    for (key, record) in records {
                        self.unused.remove(&key);
                        if let Err(error) = self.controller.follow_record(&key, record) {
                            self.on_unused(key, &error);
                        }
                    }
                }
                News::Elected(term, decisions) => self.take_over(term, decisions, now),
                News::Deposed => self.end_term(),
            }
        }
        self.extend_term(now);
    }

    fn on_fault(&mut self, fault: Option<String>) {
        match &fault {
            Some(reason) => tracing::warn!(reason, "the store of decisions cannot be used"),
            None => tracing::info!("the store of decisions can be used again"),
        }
        self.store_fault = fault;
    }

    fn on_unreadable(&mut self, records: BTreeMap<String, String>) {
        for (key, reason) in records.iter().filter(|it| self.unreadable.get(it.0) != Some(it.1)) {
            tracing::error!(key, reason, "a record of the controllers' store cannot be read");
        }
        self.unreadable = records;
    }

    /// Records that a record which can be read cannot be used beside the others.
    fn on_unused(&mut self, key: RecordKey, error: &StateError) {
        tracing::error!(%key, %error, "a record of the controllers' store cannot be used");
        self.unused.insert(key, error.to_string());
    }

    /// Takes all decisions in place of those of this controller.
    fn use_all(&mut self, records: Vec<(RecordKey, Record)>) -> Known {
        let TakenOver { known, unused } = self.controller.take_over(records);
        self.unused.clear();
        unused.into_iter().for_each(|(key, error)| self.on_unused(key, &error));
        known
    }

    fn follow_all(&mut self, decisions: Decisions) {
        if self.office.term().is_some() {
            return;
        }
        self.event_counts = decisions.event_counts;
        self.use_all(decisions.records);
    }

    /// Begins a term.
    fn take_over(&mut self, term: Term, decisions: Decisions, now: Instant) {
        self.end_term();
        let known = self.use_all(decisions.records);
        let (jobs, moves) = (self.controller.jobs().len(), self.controller.moves().count());
        tracing::info!(
            term = term.number,
            jobs,
            moves,
            "elected; routers grant the lease of the term"
        );
        self.event_counts.clone_from(&decisions.event_counts);
        self.kept = self.store.lead(term.number, known, decisions.event_counts);
        self.saved = self.kept;
        self.leader = None;
        let until = term.lease.valid_until();
        self.leases.begin(lease::Term { number: term.number, until }, now);
        let unread = self.workers.keys().map(|name| (name.clone(), None)).collect();
        self.office = Office::TakesOver { term, begun: now, unread };
    }

    /// Ends the term, if there is one. What was not kept has not happened.
    fn end_term(&mut self) {
        if self.office.term().is_none() {
            return;
        }
        tracing::warn!("this controller does not lead any more");
        self.office = Office::StandsBy;
        self.leases.set_term(None);
        self.held.clear();
        let refusal = self.watches();
        self.waiting.drain(..).for_each(|(_, it)| it.refuse(refusal.clone()));
    }

    /// Extends the term by what the store's lease lasts, and begins to steer when routers are ready.
    fn extend_term(&mut self, now: Instant) {
        let Some(Term { number, lease }) = self.office.term().cloned() else { return };
        self.leases.set_term(Some(lease::Term { number, until: lease.valid_until() }));
        let Office::TakesOver { term, begun, unread } = &self.office else { return };
        let is_silent = |router: &String| self.read_errors.contains_key(router);
        let is_read = unread.keys().all(is_silent) || now.since(*begun) >= READ_TIMEOUT;
        if is_read && lease.is_valid() && self.leases.epoch(now).is_some() {
            let unread: BTreeSet<String> = unread.keys().cloned().collect();
            tracing::info!(term = number, ?unread, "steers");
            self.controller.expect_tables(unread);
            self.office = Office::Leads(term.clone());
            self.changed = true;
        }
    }

    /// Has the tables of a router read that has granted its lease.
    pub(super) fn on_granted(&mut self, router: &str, now: Instant) {
        let Office::TakesOver { unread, .. } = &mut self.office else { return };
        if let Some(granted) = unread.get_mut(router).filter(|granted| granted.is_none()) {
            *granted = Some(now);
            self.order(router, Job::Read { requested_at: now });
        }
    }

    /// Records that the tables of a router were read after this time.
    pub(super) fn on_tables(&mut self, router: &str, requested_at: Instant) {
        if let Office::TakesOver { unread, .. } = &mut self.office
            && let Some(Some(granted)) = unread.get(router)
            && *granted <= requested_at
        {
            unread.remove(router);
        }
    }
}
