//! Reads and writes of commands. A write is checked against what is there, and made only if nothing that the check has
//! read has changed since.

mod check;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use weft_etcd::{Client, Compare, EtcdError, MAX_OPERATIONS, Revision, Transaction};

use super::file::machine;
use super::{FleetFile, Key, KeyError, Object};
use crate::config::{ConfigError, Port};
use check::{check, holders};

/// A fleet's objects in etcd.
#[derive(Debug)]
pub struct Store {
    client: Client,
    prefix: String,
}

/// An object as it is in etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The key after the prefix and the version, or the whole key if it is none of an object.
    pub key: String,
    /// The value; `None` if it is refused.
    pub value: Option<Object>,
    /// The reason that the key or the value is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// The numbers of keys that a command has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Keys set.
    pub set: usize,
    /// Keys deleted.
    pub deleted: usize,
    /// Keys that had the value already.
    pub unchanged: usize,
}

/// The reason that a command is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A request failed.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// A value of the file is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A key is none of an object.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The change contradicts other objects.
    #[error("{key}: {reason}")]
    Contradiction {
        /// The key.
        key: Key,
        /// The reason, with the fix.
        reason: String,
    },
    /// There is no such object.
    #[error("there is no {0} in the fleet: see `weft fleet list`")]
    Absent(Key),
    /// There are more writes than a transaction has room for.
    #[error(
        "{0} keys are more than the {MAX_OPERATIONS} of a transaction, so that all of them or none cannot be promised: \
         write parts of the file, or `--in-parts` to write one transaction after another"
    )]
    TooMany(usize),
    /// Others have changed what the check has read.
    #[error("others have changed the same objects meanwhile: nothing is written; try again")]
    Contended,
}

/// Objects that were read, with the revisions of their last changes.
#[derive(Debug, Default)]
pub(super) struct Known {
    objects: BTreeMap<Key, Object>,
    modified: BTreeMap<Key, Revision>,
}

/// Changes of keys; `None` is a deletion.
type Changes = BTreeMap<Key, Option<Object>>;

impl Store {
    /// Returns the objects of a fleet whose keys begin with `prefix`.
    pub fn new(client: Client, prefix: &str) -> Self {
        Self { client, prefix: prefix.to_owned() }
    }

    /// Returns all objects, those of refused values with their faults.
    ///
    /// # Errors
    /// A request failed.
    pub fn list(&self) -> Result<Vec<Entry>, StoreError> {
        let listing = self.client.list(&format!("{}/", self.prefix))?;
        let entry = |pair: &weft_etcd::KeyValue| match Key::parse(&self.prefix, &pair.key) {
            Ok(key) => {
                let (value, fault) = match Object::parse(&key, &pair.value) {
                    Ok(object) => (Some(object), None),
                    Err(error) => (None, Some(error.to_string())),
                };
                Entry { key: key.to_string(), value, fault }
            }
            Err(error) => {
                let key = String::from_utf8_lossy(&pair.key).into_owned();
                Entry { key, value: None, fault: Some(error.to_string()) }
            }
        };
        Ok(listing.entries.iter().map(entry).collect())
    }

    /// Returns the faults of all objects by key: refused values, and contradictions between objects.
    ///
    /// # Errors
    /// A request failed.
    pub fn check(&self) -> Result<BTreeMap<String, String>, StoreError> {
        let (mut faults, mut known) = (BTreeMap::new(), Known::default());
        for Entry { key, value, fault } in self.list()? {
            match (key.parse(), value) {
                (Ok(parsed), Some(object)) => {
                    known.objects.insert(parsed, object);
                }
                _ => {
                    faults.insert(key, fault.unwrap_or_default());
                }
            }
        }
        let keys: BTreeSet<_> = known.objects.keys().cloned().collect();
        let found = check(&known.objects, &keys);
        faults.extend(found.into_iter().map(|(key, reason)| (key.to_string(), reason)));
        Ok(faults)
    }

    /// Sets the objects of a file: all of them in a transaction, or none; with `in_parts`, one transaction after another,
    /// policies and networks first.
    ///
    /// # Errors
    /// The first reason that they cannot be set.
    pub fn put(&self, file: &FleetFile, in_parts: bool) -> Result<Written, StoreError> {
        let mut changes: Changes =
            file.objects()?.into_iter().map(|(key, object)| (key, Some(object))).collect();
        let known = self.read(&changes)?;
        // A port that is of another network or address now leaves its former machine behind.
        let former = changes.keys().filter_map(|key| known.machine_of(key)).collect::<Vec<_>>();
        for key in former {
            changes.entry(key).or_insert(None);
        }
        self.write(&changes, &known, in_parts)
    }

    /// Deletes an object; with a port its machine, and with a host that lives no longer its ports.
    ///
    /// # Errors
    /// There is no such object, or others need it.
    pub fn delete(&self, key: &Key) -> Result<Written, StoreError> {
        let mut changes = Changes::from([(key.clone(), None)]);
        let known = self.read(&changes)?;
        if !known.objects.contains_key(key) {
            // A refused value is deleted as it is.
            let path = key.path(&self.prefix);
            let pair = self.client.get(&path)?.ok_or_else(|| StoreError::Absent(key.clone()))?;
            let delete = Transaction::new().when(Compare::modified(&path, pair.modified));
            return match self.client.transact(&delete.delete(&path))?.succeeded {
                true => Ok(Written { deleted: 1, ..Written::default() }),
                false => Err(StoreError::Contended),
            };
        }
        changes.extend(known.machine_of(key).map(|machine| (machine, None)));
        self.write(&changes, &known, false)
    }

    /// Moves a port to another host, with the place of its machine.
    ///
    /// # Errors
    /// There is no such port, or the other host has one of its name.
    pub fn move_port(&self, host: &str, name: &str, to: &str) -> Result<Written, StoreError> {
        let (old, new) = (Key::Port(host.into(), name.into()), Key::Port(to.into(), name.into()));
        let mut changes = Changes::from([(old.clone(), None), (new.clone(), None)]);
        let known = self.read(&changes)?;
        let Some(Object::Port(port)) = known.objects.get(&old) else {
            return Err(StoreError::Absent(old));
        };
        if known.objects.contains_key(&new) {
            let reason = format!("host {to} has a port of this name already");
            return Err(StoreError::Contradiction { key: new, reason });
        }
        let place = machine(to, port)?;
        changes.insert(new, Some(Object::Port(port.clone())));
        changes.insert(Key::Machine(port.vni, port.mac), Some(Object::Machine(place)));
        self.write(&changes, &known, false)
    }

    /// Reads what changes of these keys are checked against: policies, and the ports, networks and hosts that they concern.
    fn read(&self, changes: &Changes) -> Result<Known, StoreError> {
        let mut paths = BTreeSet::from([Key::all(&self.prefix, "policies")]);
        for (key, object) in changes {
            paths.extend(key.vni().map(|vni| Key::network(&self.prefix, vni)));
            match (key, object) {
                // Only all ports show that none needs the policy, or is in the network.
                (key, None) if key.is_policy() => {
                    paths.insert(Key::all(&self.prefix, "ports"));
                }
                (Key::Network(_), None) => {
                    paths.insert(Key::all(&self.prefix, "ports"));
                }
                (Key::Host(name) | Key::Port(name, _), _) => {
                    paths.insert(Key::ports_of(&self.prefix, name));
                    paths.insert(Key::Host(name.clone()).path(&self.prefix));
                    paths.insert(Key::Alive(name.clone()).path(&self.prefix));
                }
                _ => {}
            }
        }
        let mut known = Known::default();
        paths.iter().try_for_each(|path| self.read_into(path, &mut known))?;
        // The networks of ports that are deleted or moved.
        let ports = known.objects.values().filter_map(|object| match object {
            Object::Port(port) => Some(port.vni),
            _ => None,
        });
        let networks: BTreeSet<_> = ports.map(|vni| Key::network(&self.prefix, vni)).collect();
        let concerned = changes.len() <= MAX_OPERATIONS;
        let unread = networks.difference(&paths).filter(|_| concerned);
        unread.into_iter().try_for_each(|path| self.read_into(path, &mut known))?;
        Ok(known)
    }

    fn read_into(&self, path: &str, known: &mut Known) -> Result<(), StoreError> {
        for pair in self.client.list(path)?.entries {
            let Ok(key) = Key::parse(&self.prefix, &pair.key) else { continue };
            // A refused value is as good as none: it may be set again, and deleted.
            if let Ok(object) = Object::parse(&key, &pair.value) {
                known.objects.insert(key.clone(), object);
            }
            known.modified.insert(key, pair.modified);
        }
        Ok(())
    }

    /// Writes changes if they fit what is known.
    fn write(
        &self,
        changes: &Changes,
        known: &Known,
        in_parts: bool,
    ) -> Result<Written, StoreError> {
        let mut after = known.objects.clone();
        for (key, object) in changes {
            match object {
                Some(object) => after.insert(key.clone(), object.clone()),
                None => after.remove(key),
            };
        }
        known.check_places(changes)?;
        let touched = changes.keys().cloned().chain(holders(changes, &after)).collect();
        if let Some((key, reason)) = check(&after, &touched).into_iter().next() {
            return Err(StoreError::Contradiction { key, reason });
        }
        let is_same =
            |(key, object): &(&Key, &Option<Object>)| known.objects.get(*key) == object.as_ref();
        let (same, different): (Vec<_>, Vec<_>) = changes.iter().partition(is_same);
        let conditions = different.len() + needed(&different).len();
        if conditions > MAX_OPERATIONS && !in_parts {
            return Err(StoreError::TooMany(conditions));
        }
        let mut written = Written { unchanged: same.len(), ..Written::default() };
        for part in different.chunks(MAX_OPERATIONS / 2 * if in_parts { 1 } else { 2 }) {
            self.write_part(part, known, &mut written)?;
        }
        Ok(written)
    }

    fn write_part(
        &self,
        part: &[(&Key, &Option<Object>)],
        known: &Known,
        written: &mut Written,
    ) -> Result<(), StoreError> {
        let mut transaction = Transaction::new();
        for key in needed(part) {
            transaction = transaction.when(Compare::exists(&key.path(&self.prefix)));
        }
        for (key, object) in part {
            let path = key.path(&self.prefix);
            let modified = known.modified.get(*key).copied().unwrap_or_default();
            transaction = transaction.when(Compare::modified(&path, modified));
            transaction = match object {
                Some(object) => transaction.put(&path, &object.json()),
                None => transaction.delete(&path),
            };
        }
        if !self.client.transact(&transaction)?.succeeded {
            return Err(StoreError::Contended);
        }
        let set = part.iter().filter(|(_, object)| object.is_some()).count();
        written.set += set;
        written.deleted += part.len() - set;
        Ok(())
    }
}

/// Returns the keys that objects refer to, and that are not among them: these must still be there.
fn needed(part: &[(&Key, &Option<Object>)]) -> BTreeSet<Key> {
    let written = |needed: &Key| part.iter().any(|(key, _)| *key == needed);
    let set = part.iter().filter_map(|(key, object)| Some((*key, object.as_ref()?)));
    set.flat_map(|(key, object)| check::references(key, object)).filter(|it| !written(it)).collect()
}

impl Known {
    /// Returns the key of the machine of a port that is there, unless the machine is on another host by now.
    fn machine_of(&self, key: &Key) -> Option<Key> {
        let (Key::Port(host, _), Object::Port(port)) = (key, self.objects.get(key)?) else {
            return None;
        };
        let machine = Key::Machine(port.vni, port.mac);
        match self.objects.get(&machine)? {
            Object::Machine(place) if place.host.as_ref() == Some(host) => Some(machine),
            _ => None,
        }
    }

    /// Refuses to place a machine on another host than it is on, but for a port that leaves that host.
    fn check_places(&self, changes: &Changes) -> Result<(), StoreError> {
        for (key, object) in changes {
            let (Some(Object::Machine(new)), Some(Object::Machine(old))) =
                (object, self.objects.get(key))
            else {
                continue;
            };
            let leaves = |port: &Port| Key::Machine(port.vni, port.mac) == *key;
            let has_left = changes.iter().any(|(key, change)| {
                change.is_none()
                    && matches!(self.objects.get(key), Some(Object::Port(port)) if leaves(port))
            });
            if (&new.host, new.peer) != (&old.host, old.peer) && !has_left {
                let at = old.host.clone().or_else(|| old.peer.map(|peer| peer.to_string()));
                let at = at.unwrap_or_default();
                let reason = format!(
                    "the machine is at {at}: `weft fleet move {at}/PORT HOST` moves it, or delete its port there"
                );
                return Err(StoreError::Contradiction { key: key.clone(), reason });
            }
        }
        Ok(())
    }
}
