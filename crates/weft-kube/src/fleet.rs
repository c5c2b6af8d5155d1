//! The fleet in etcd, as the controller writes it: only the differences, only objects of its own, and only while it leads.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use weft_etcd::{
    Change, Client, Compare, EtcdError, KeyValue, Revision, Transaction, Watch, WatchEvent,
};
use weft_vswitch::fleet::{Key, Object};

use crate::Owner;

/// Maximum number of keys in a transaction. A key has up to two comparisons and the term one; etcd accepts 128.
const MAX_KEYS: usize = 60;

/// Maximum bytes of the values of a transaction. etcd accepts requests of 1.5 MiB.
const MAX_BYTES: usize = 512 << 10;

/// The kinds of keys that the controller reads.
const KINDS: [&str; 3] = ["networks", "policies", "port-policies"];

/// A term as the leader, which counts up: that of a later leader is greater.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Term {
    /// The time at which the Lease was made. One that is made again counts its transitions anew.
    pub created: String,
    /// The number of times that the Lease has changed its holder.
    pub transitions: i32,
    /// The holder.
    pub holder: String,
}

/// The reason that objects are not written.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// A request failed.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// Another controller of the cluster leads.
    #[error("another controller leads: {0}")]
    Fenced(String),
    /// Others have changed the same keys.
    #[error("others have changed the same keys meanwhile")]
    Contended,
}

impl FleetError {
    /// Returns the reason in words for anyone: no address, and nothing that another program has answered.
    pub(crate) const fn summary(&self) -> &'static str {
        match self {
            Self::Etcd(_) => "etcd refuses, or does not answer",
            Self::Fenced(_) => "another controller leads",
            Self::Contended => "others change the same keys",
        }
    }
}

/// The result of writing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Number of keys set.
    pub set: usize,
    /// Number of keys deleted.
    pub deleted: usize,
    /// Networks that the fleet has from others.
    pub not_owned: BTreeSet<u32>,
    /// Networks that wait for the end of their machines before they are deleted.
    pub in_use: BTreeSet<u32>,
}

/// A value as it is in etcd; `None` if hosts refuse it.
#[derive(Clone, Debug)]
struct Known {
    object: Option<Object>,
    modified: Revision,
}

/// The fleet's objects in etcd, and the term in which they are written.
#[derive(Debug)]
pub struct Fleet {
    client: Client,
    prefix: String,
    owner: Owner,
    /// The key that every write compares.
    fence: String,
    term: Option<(Term, Revision)>,
    known: BTreeMap<Key, Known>,
    watch: Option<Watch>,
    /// The prefixes that are not watched yet.
    unlisted: BTreeSet<String>,
    /// `true` while changes of others do not arrive.
    is_lost: bool,
}

impl Fleet {
    /// Returns the fleet whose keys begin with `prefix`.
    pub fn new(client: Client, prefix: &str, owner: Owner) -> Self {
        let unlisted = KINDS.map(|kind| Key::all(prefix, kind)).into();
        // Beside the fleet's keys, which hosts and `weft fleet` read.
        let fence = format!("{prefix}-kube/{}/leader", owner.as_str());
        let (term, known, watch) = (None, BTreeMap::new(), None);
        let prefix = prefix.to_owned();
        Self { client, prefix, owner, fence, term, known, watch, unlisted, is_lost: false }
    }

    /// Begins a term: from now on writes of earlier terms are refused.
    ///
    /// # Errors
    /// A later term has begun, or a request failed.
    pub fn begin(&mut self, term: &Term) -> Result<(), FleetError> {
        self.term = None;
        let pair = self.client.get(&self.fence)?;
        let known: Option<Term> =
            pair.as_ref().and_then(|pair| serde_json::from_slice(&pair.value).ok());
        if let Some(known) = known.filter(|known| known > term) {
            return Err(FleetError::Fenced(known.holder));
        }
        let before = pair.map_or_else(Revision::default, |pair| pair.modified);
        let value = serde_json::to_vec(term).expect("no map has other keys than strings");
        let begin = Transaction::new().when(Compare::modified(&self.fence, before));
        let begun = self.client.transact(&begin.put(&self.fence, &value))?;
        if !begun.succeeded {
            return Err(FleetError::Contended);
        }
        self.term = Some((term.clone(), begun.revision));
        Ok(())
    }

    /// Takes the changes of others that have arrived. Returns `true` if there were any, or could be after an interruption.
    ///
    /// # Errors
    /// A request failed.
    pub fn refresh(&mut self) -> Result<bool, FleetError> {
        let mut changed = false;
        while let Some(event) = self.watch.as_mut().and_then(Watch::try_next) {
            match event {
                WatchEvent::Changes { changes, .. } => {
                    changed = true;
                    changes.into_iter().for_each(|change| self.on_change(change));
                }
                WatchEvent::Compacted { prefix, .. } => drop(self.unlisted.insert(prefix)),
                WatchEvent::Connected { endpoint } => {
                    tracing::info!(etcd = endpoint, "etcd is followed");
                    changed |= std::mem::take(&mut self.is_lost);
                }
                WatchEvent::Disconnected(error) => {
                    tracing::warn!(%error, "etcd is lost");
                    self.is_lost = true;
                }
            }
        }
        while let Some(path) = self.unlisted.first().cloned() {
            self.list(&path)?;
            self.unlisted.remove(&path);
            changed = true;
        }
        Ok(changed)
    }

    /// Returns `true` while changes of others do not arrive.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    fn list(&mut self, path: &str) -> Result<(), FleetError> {
        let listing = self.client.list(path)?;
        let prefix = &self.prefix;
        self.known.retain(|key, _| !key.path(prefix).starts_with(path));
        let from = listing.revision.next();
        listing.entries.into_iter().for_each(|pair| self.on_change(Change::Put(pair)));
        match &self.watch {
            Some(watch) => watch.add(path, from),
            None => self.watch = Some(self.client.watch(path, from)),
        }
        Ok(())
    }

    /// Takes a change. One that this controller has made arrives after its answer, or after a later one.
    fn on_change(&mut self, change: Change) {
        let (path, modified, value) = match change {
            Change::Put(KeyValue { key, value, modified, .. }) => (key, modified, Some(value)),
            Change::Delete { key, revision } => (key, revision, None),
        };
        let Ok(key) = Key::parse(&self.prefix, &path) else { return };
        if self.known.get(&key).is_some_and(|known| known.modified > modified) {
            return;
        }
        match value {
            Some(value) => {
                let object = Object::parse(&key, &value).ok();
                self.known.insert(key, Known { object, modified });
            }
            None => drop(self.known.remove(&key)),
        }
    }

    /// Makes the owner's objects those of `wanted`.
    ///
    /// # Errors
    /// A request failed, this is no leader any more, or others have changed the same keys.
    pub fn write(&mut self, wanted: &BTreeMap<Key, Object>) -> Result<Written, FleetError> {
        self.refresh()?;
        let (changes, mut written) = self.changes(wanted);
        let mut part: Vec<(Key, Option<Object>)> = vec![];
        let mut bytes = 0;
        for (key, object) in changes {
            let len = object.as_ref().map_or(0, |object| object.json().len());
            if part.len() == MAX_KEYS || (bytes + len > MAX_BYTES && !part.is_empty()) {
                self.write_part(&part, &mut written)?;
                (part, bytes) = (vec![], 0);
            }
            part.push((key, object));
            bytes += len;
        }
        if !part.is_empty() {
            self.write_part(&part, &mut written)?;
        }
        Ok(written)
    }

    /// Returns the changes in their order: what others refer to first, deletions last and the other way round.
    fn changes(&self, wanted: &BTreeMap<Key, Object>) -> (Vec<(Key, Option<Object>)>, Written) {
        let mut written = Written::default();
        let mut changes = vec![];
        for (key, object) in wanted {
            match self.known.get(key) {
                Some(known) if known.object.as_ref() == Some(object) => {}
                Some(known) if !self.owns(key, known.object.as_ref()) => {
                    written.not_owned.extend(key.vni());
                }
                _ => changes.push((key.clone(), Some(object.clone()))),
            }
        }
        for (key, known) in self.known.iter().rev() {
            if wanted.contains_key(key) || !self.owns(key, known.object.as_ref()) {
                continue;
            }
            match key {
                Key::Network(vni) if self.has_machines(*vni) => drop(written.in_use.insert(*vni)),
                _ => changes.push((key.clone(), None)),
            }
        }
        (changes, written)
    }

    /// Returns `true` if an object is this controller's: a policy by its name, a network by its field.
    fn owns(&self, key: &Key, object: Option<&Object>) -> bool {
        match (key, object) {
            (Key::Set(name) | Key::SecurityGroup(name) | Key::PortPolicies(_, name), _) => {
                self.owner.owns(name)
            }
            (Key::Network(_), Some(Object::Network(network))) => {
                network.owner.as_deref() == Some(self.owner.as_str())
            }
            _ => false,
        }
    }

    fn has_machines(&self, vni: u32) -> bool {
        self.known.keys().any(|key| matches!(key, Key::Machine(of, _) if *of == vni))
    }

    fn write_part(
        &mut self,
        part: &[(Key, Option<Object>)],
        written: &mut Written,
    ) -> Result<(), FleetError> {
        let Some((_, begun)) = self.term else { return Err(FleetError::Fenced("none".into())) };
        let mut transaction = Transaction::new().when(Compare::modified(&self.fence, begun));
        for (key, object) in part {
            let path = key.path(&self.prefix);
            let modified = self.known.get(key).map_or_else(Revision::default, |it| it.modified);
            transaction = transaction.when(Compare::modified(&path, modified));
            transaction = match object {
                Some(object) => transaction.put(&path, &object.json()),
                None => transaction.delete(&path),
            };
            if let (Key::Network(vni), None) = (key, object) {
                // A machine may have been added that is not known here yet.
                let machines = Key::machines(&self.prefix, *vni);
                transaction = transaction.when(Compare::none_below(&machines));
            }
        }
        let done = self.client.transact(&transaction)?;
        if !done.succeeded {
            return Err(self.refusal(begun)?);
        }
        for (key, object) in part {
            match object {
                Some(object) => {
                    let known = Known { object: Some(object.clone()), modified: done.revision };
                    self.known.insert(key.clone(), known);
                    written.set += 1;
                }
                None => {
                    self.known.remove(key);
                    written.deleted += 1;
                }
            }
        }
        Ok(())
    }

    /// Returns the reason that a transaction was not made.
    fn refusal(&mut self, begun: Revision) -> Result<FleetError, EtcdError> {
        let pair = self.client.get(&self.fence)?;
        if pair.as_ref().is_some_and(|pair| pair.modified == begun) {
            // What is known is not what is there, whatever the reason.
            self.unlisted = KINDS.map(|kind| Key::all(&self.prefix, kind)).into();
            self.watch = None;
            return Ok(FleetError::Contended);
        }
        self.term = None;
        let term = pair.and_then(|pair| serde_json::from_slice::<Term>(&pair.value).ok());
        Ok(FleetError::Fenced(term.map_or_else(|| "unknown".to_owned(), |term| term.holder)))
    }
}
