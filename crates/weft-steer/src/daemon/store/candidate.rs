//! The thread that speaks with etcd: it stands for election, keeps the decisions while this controller leads, and follows
//! those of the leader otherwise.
//!
//! The leader is the controller whose name is under the key `leader`, with a lease. The revision at which that key was
//! created is the leader's term. An election is no mutual exclusion: a leader that was suspended may wake up after the next
//! one was elected. So every write compares that revision in its transaction, and routers refuse earlier terms.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use weft_etcd::{
    Change, Client, Compare, EtcdError, Lease, Listing, Revision, Transaction, WatchEvent,
};
use weft_route::{Record, RecordKey};

use super::records::{Entries, LAST_WRITE, LEADER, OVERVIEW, Write};
use super::writes::{Writes, batches};
use super::{Decisions, EventCounts, Leader, News, Term};

/// Changes that the daemon wants to be kept.
#[derive(Debug)]
pub(super) struct Save {
    /// The term in which they were decided. They are not kept in another.
    pub(super) term: u64,
    /// The number of the save.
    pub(super) number: u64,
    pub(super) changes: Vec<(RecordKey, Option<Record>)>,
    pub(super) event_counts: Option<EventCounts>,
}

/// A term of this controller.
struct Tenure {
    lease: Arc<Lease>,
    writes: Writes,
    /// The keys and values in etcd.
    entries: Entries,
}

/// The end of a round.
enum End {
    /// Another round follows.
    Again,
    /// The daemon has ended.
    Stop,
}

/// The time between two looks at saves.
const TURN: Duration = Duration::from_millis(50);
/// The time after which etcd is asked again when it did not answer.
const RETRY: Duration = Duration::from_millis(250);

pub(super) struct Candidate {
    client: Client,
    prefix: String,
    ttl: Duration,
    me: Leader,
    saves: Receiver<Save>,
    news: Sender<News>,
    stop: Arc<AtomicBool>,
    /// The reason why this controller does not stand for election: a later version wrote the records.
    outdated: Option<String>,
    /// The last reported fault.
    fault: Option<String>,
    /// The last reported records that cannot be read.
    unreadable: BTreeMap<String, String>,
}

impl Candidate {
    pub(super) fn new(
        client: Client,
        prefix: String,
        ttl: Duration,
        me: Leader,
        (saves, news): (Receiver<Save>, Sender<News>),
        stop: Arc<AtomicBool>,
    ) -> Self {
        let (outdated, fault, unreadable) = (None, None, BTreeMap::new());
        Self { client, prefix, ttl, me, saves, news, stop, outdated, fault, unreadable }
    }

    /// Runs until the daemon ends.
    pub(super) fn run(mut self) {
        loop {
            match self.round() {
                Ok(End::Stop) => return,
                Ok(End::Again) => {}
                Err(error) => {
                    self.report(Some(error.to_string()));
                    if self.rest(RETRY) {
                        return;
                    }
                }
            }
        }
    }

    /// Stands for election once, and then leads, or follows the leader until it is gone.
    fn round(&mut self) -> Result<End, EtcdError> {
        if self.is_stopped() {
            return Ok(End::Stop);
        }
        if self.outdated.is_none()
            && let Some((term, lease)) = self.stand()?
        {
            self.report_usable();
            return Ok(self.lead(term, lease));
        }
        let listing = self.client.list(&self.prefix)?;
        self.follow(listing)
    }

    /// Stands for election. Returns the term and its lease if this controller is elected.
    fn stand(&self) -> Result<Option<(Revision, Lease)>, EtcdError> {
        let key = self.key(LEADER);
        if self.client.get(&key)?.is_some() {
            return Ok(None);
        }
        let lease = self.client.grant(self.ttl)?;
        let me = serde_json::to_vec(&self.me).expect("two texts are JSON");
        let elect =
            Transaction::new().when(Compare::absent(&key)).put_leased(&key, &me, lease.id());
        match self.client.transact(&elect) {
            Ok(outcome) if outcome.succeeded => Ok(Some((outcome.revision, lease))),
            // Without this the key of an election whose answer was lost would stay until the lease has run out.
            answer => {
                let _ = lease.revoke();
                answer.map(|_| None)
            }
        }
    }

    /// Reports the decisions of the leader until there is none.
    fn follow(&mut self, listing: Listing) -> Result<End, EtcdError> {
        let from = listing.revision.next();
        let mut entries = self.entries(listing);
        let decisions = self.read(&mut entries);
        if self.may_stand(&entries) {
            return Ok(End::Again);
        }
        self.notify(News::Leader(entries.leader()));
        self.notify(News::All(decisions));
        let mut watch = self.client.watch(&self.prefix, from);
        loop {
            // What is to be kept was decided in a term that is over.
            while self.saves.try_recv().is_ok() {}
            if self.is_stopped() {
                return Ok(End::Stop);
            }
            match watch.next(TURN) {
                None => {}
                Some(WatchEvent::Connected { .. }) => self.report_usable(),
                Some(WatchEvent::Disconnected(error)) => self.report(Some(error.to_string())),
                Some(WatchEvent::Compacted { .. }) => return Ok(End::Again),
                Some(WatchEvent::Changes { changes, .. }) => {
                    self.on_changes(changes, &mut entries);
                }
            }
            if self.may_stand(&entries) {
                self.notify(News::Leader(None));
                return Ok(End::Again);
            }
        }
    }

    fn may_stand(&self, entries: &Entries) -> bool {
        !entries.has_leader() && self.outdated.is_none()
    }

    /// Returns all decisions, and reports those that cannot be read.
    fn read(&mut self, entries: &mut Entries) -> Decisions {
        let decisions = entries.decisions();
        self.outdated = entries.later_version().map(|error| error.to_string());
        self.report_usable();
        self.report_unreadable(entries);
        decisions
    }

    fn on_changes(&mut self, changes: Vec<Change>, entries: &mut Entries) {
        let mut changed = BTreeSet::new();
        for change in changes {
            let (key, value) = match change {
                Change::Put(pair) => (pair.key, Some(pair.value)),
                Change::Delete { key, .. } => (key, None),
            };
            let Some(key) = self.own(&key) else { continue };
            changed.insert(key.clone());
            entries.set(key, value);
        }
        let records: Vec<_> = changed.iter().filter_map(|key| entries.read(key)).collect();
        if changed.contains(OVERVIEW) {
            self.outdated = entries.later_version().map(|error| error.to_string());
            self.report_usable();
        }
        self.report_unreadable(entries);
        if changed.contains(LEADER) {
            self.notify(News::Leader(entries.leader()));
        }
        if !records.is_empty() {
            self.notify(News::Changed(records));
        }
    }

    /// Leads until the term is over.
    fn lead(&mut self, term: Revision, lease: Lease) -> End {
        let Some(mut tenure) = self.take_over(term, Arc::new(lease)) else { return End::Again };
        let mut checked = Instant::now();
        loop {
            if self.is_stopped() {
                self.step_down(term);
                return End::Stop;
            }
            let goes_on = match self.saves.recv_timeout(TURN) {
                // The daemon had not learned that its term was over when it decided this.
                Ok(save) if save.term != number_of(term) => true,
                Ok(save) => self.keep(&mut tenure, save),
                Err(RecvTimeoutError::Timeout) => {
                    let fault = "etcd does not renew the lease of this leader";
                    self.report((!tenure.lease.is_valid()).then(|| fault.to_owned()));
                    !tenure.lease.has_ended() && self.has_key(term, &mut checked)
                }
                Err(RecvTimeoutError::Disconnected) => return End::Stop,
            };
            if !goes_on && !self.is_stopped() {
                self.notify(News::Deposed);
                return End::Again;
            }
        }
    }

    /// Returns `false` if somebody has removed the leader's key, which a leader that writes nothing would not learn. Asks etcd
    /// at intervals of the lease.
    fn has_key(&self, term: Revision, checked: &mut Instant) -> bool {
        if checked.elapsed() < self.ttl {
            return true;
        }
        *checked = Instant::now();
        // Without an answer the lease decides.
        let leader = self.client.get(&self.key(LEADER));
        leader.map_or(true, |it| it.is_some_and(|it| it.created == term))
    }

    /// Reads the decisions of the leader before, and reports them. Returns `None` if the term has ended meanwhile, or if this
    /// program must not lead.
    fn take_over(&mut self, term: Revision, lease: Arc<Lease>) -> Option<Tenure> {
        let listing = loop {
            match self.client.list(&self.prefix) {
                Ok(listing) => break listing,
                Err(error) => self.report(Some(error.to_string())),
            }
            if lease.has_ended() || self.rest(RETRY) {
                return None;
            }
        };
        let last_write = self.key(LAST_WRITE);
        let last = listing.entries.iter().find(|it| it.key == last_write.as_bytes());
        let last = last.map_or_else(Revision::default, |it| it.modified);
        let mut entries = self.entries(listing);
        let decisions = self.read(&mut entries);
        if self.outdated.is_some() {
            self.step_down(term);
            return None;
        }
        let writes = Writes::new(self.prefix.clone(), term, last);
        let mut tenure = Tenure { lease, writes, entries };
        let orphans = tenure.entries.orphans();
        if !self.write(&mut tenure, &orphans) {
            return None;
        }
        orphans.into_iter().for_each(|(key, value)| tenure.entries.set(key, value));
        let (number, lease) = (number_of(term), Arc::clone(&tenure.lease));
        self.notify(News::Elected(Term { number, lease }, decisions));
        Some(tenure)
    }

    /// Keeps what the daemon has decided. Returns `false` if the term is over.
    fn keep(&mut self, tenure: &mut Tenure, save: Save) -> bool {
        let id = format!("{}-{}", save.term, save.number);
        let writes = tenure.entries.write(&id, save.changes, save.event_counts);
        let is_kept = self.write(tenure, &writes);
        if is_kept {
            self.report_unreadable(&tenure.entries);
            self.notify(News::Kept(save.number));
        }
        is_kept
    }

    /// Makes writes as the leader, and tries again while etcd does not answer. Returns `false` if the term is over.
    fn write(&mut self, tenure: &mut Tenure, writes: &[Write]) -> bool {
        for batch in batches(writes) {
            let write = tenure.writes.next(batch);
            loop {
                match self.client.transact(&write.transaction) {
                    Ok(outcome) => {
                        self.report_usable();
                        if !tenure.writes.on_outcome(&write, &outcome) {
                            return false;
                        }
                        break;
                    }
                    Err(error) => self.report(Some(error.to_string())),
                }
                if tenure.lease.has_ended() || self.rest(RETRY) {
                    return false;
                }
            }
        }
        true
    }

    /// Ends the term. If etcd does not answer, it ends with its lease.
    fn step_down(&self, term: Revision) {
        let key = self.key(LEADER);
        let delete = Transaction::new().when(Compare::created(&key, term)).delete(&key);
        let _ = self.client.transact(&delete);
    }

    fn entries(&self, listing: Listing) -> Entries {
        let mut entries = Entries::default();
        for pair in listing.entries {
            if let Some(key) = self.own(&pair.key) {
                entries.set(key, Some(pair.value));
            }
        }
        entries
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Returns a key without the prefix. One that is no text is no record's.
    fn own(&self, key: &[u8]) -> Option<String> {
        Some(String::from_utf8_lossy(key).strip_prefix(&self.prefix)?.to_owned())
    }

    /// Waits. Returns `true` if the daemon ends.
    fn rest(&self, span: Duration) -> bool {
        let until = Instant::now() + span;
        while Instant::now() < until && !self.is_stopped() {
            std::thread::sleep(TURN.min(span));
        }
        self.is_stopped()
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Reports that etcd answers.
    fn report_usable(&mut self) {
        self.report(self.outdated.clone());
    }

    /// Reports the records that cannot be read, once.
    fn report_unreadable(&mut self, entries: &Entries) {
        if self.unreadable != *entries.unreadable() {
            self.unreadable.clone_from(entries.unreadable());
            self.notify(News::Unreadable(self.unreadable.clone()));
        }
    }

    /// Reports a fault, or its end, once.
    fn report(&mut self, fault: Option<String>) {
        if self.fault != fault {
            self.fault.clone_from(&fault);
            self.notify(News::Fault(fault));
        }
    }

    fn notify(&self, news: News) {
        // A daemon that has ended hears nothing.
        let _ = self.news.send(news);
    }
}

/// Returns a term as the number that routers compare.
fn number_of(term: Revision) -> u64 {
    u64::try_from(term.0).expect("revisions grow from 1")
}
