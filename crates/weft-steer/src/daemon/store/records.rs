//! Records as keys and values of a store: JSON, in parts where it is long.
//!
//! A record that cannot be read is noted with its key and the reason, and the others are used. It stays where it is. Where a
//! later decision replaces it, a copy stays.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weft_route::{RECORDS_VERSION, Record, RecordKey, StateError};

use super::{Decisions, EventCounts, Leader};

/// The key of the leader; its revision of creation is the leader's term.
pub(super) const LEADER: &str = "leader";
/// The key of the number of the last write (`writes.rs`).
pub(super) const LAST_WRITE: &str = "last-write";
/// The key of the record without which none is of a known version.
pub(super) const OVERVIEW: &str = "overview";
/// The key of the counts of events.
const EVENTS: &str = "events";
/// The beginning of the keys of parts.
const PARTS: &str = "parts/";
/// The beginning of the keys of copies of records that could not be read, and were replaced.
const COPIES: &str = "unreadable/";
/// Maximum length of a value in bytes. etcd refuses requests of more than 1.5 MiB.
const MAX_VALUE: usize = 512 << 10;

/// The value of a record that is in parts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    /// The number of parts.
    parts: usize,
    /// The name that the keys of the parts have in common.
    id: String,
}

/// The reason why a record cannot be read.
#[derive(Debug, thiserror::Error)]
enum RecordError {
    #[error("it has {got} of its {parts} parts")]
    Parts { got: usize, parts: usize },
    #[error("it is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
    #[error(transparent)]
    Unusable(#[from] StateError),
    #[error("records of version {RECORDS_VERSION} have no such key")]
    Key,
    #[error(
        "a copy of a record that could not be read and was replaced; delete the key if nobody needs it"
    )]
    Copy,
}

/// A change of a key: its value, or none if it is deleted.
pub(super) type Write = (String, Option<Vec<u8>>);

/// A record with its key; none in place of one that is gone.
pub(super) type KeyedRecord = (RecordKey, Option<Record>);

/// The keys and values of a store.
#[derive(Debug, Default)]
pub(super) struct Entries {
    values: BTreeMap<String, Vec<u8>>,
    /// By key, the reason why it cannot be read.
    unreadable: BTreeMap<String, String>,
}

impl Entries {
    pub(super) fn set(&mut self, key: String, value: Option<Vec<u8>>) {
        match value {
            Some(value) => self.values.insert(key, value),
            None => self.values.remove(&key),
        };
    }

    /// Returns `true` if there is a leader, whether this program can read its name or not.
    pub(super) fn has_leader(&self) -> bool {
        self.values.contains_key(LEADER)
    }

    /// Returns the leader, if there is one that this program can read.
    pub(super) fn leader(&self) -> Option<Leader> {
        serde_json::from_slice(self.values.get(LEADER)?).ok()
    }

    /// Returns the records that were found to be unreadable, by key, with the reason.
    pub(super) const fn unreadable(&self) -> &BTreeMap<String, String> {
        &self.unreadable
    }

    /// Returns the reason why this program must not lead, if a later version of it wrote the records.
    pub(super) fn later_version(&self) -> Option<StateError> {
        let overview = self.whole(self.values.get(OVERVIEW)?).ok()?;
        // Other fields of a later version may be unknown here.
        let overview: serde_json::Value = serde_json::from_slice(&overview).ok()?;
        let got = overview[OVERVIEW]["version"].as_u64()?;
        let got = u32::try_from(got).unwrap_or(u32::MAX);
        (got > RECORDS_VERSION).then_some(StateError::Records { got, read: RECORDS_VERSION })
    }

    /// Returns all decisions that can be read, and notes the others.
    pub(super) fn decisions(&mut self) -> Decisions {
        self.unreadable.clear();
        let keys: Vec<String> = self.values.keys().cloned().collect();
        let records = keys.iter().filter_map(|key| self.read(key));
        let records = records.filter_map(|(key, record)| Some((key, record?))).collect();
        let event_counts = self.values.get(EVENTS).and_then(|it| serde_json::from_slice(it).ok());
        Decisions { records, event_counts: event_counts.unwrap_or_default() }
    }

    /// Returns the record of a key; `None` for a key that is not a record's, or if it cannot be read, which is noted.
    pub(super) fn read(&mut self, key: &str) -> Option<KeyedRecord> {
        match self.record(key) {
            Ok(found) => {
                self.unreadable.remove(key);
                found
            }
            Err(reason) => {
                self.unreadable.insert(key.to_owned(), reason.to_string());
                None
            }
        }
    }

    fn record(&self, key: &str) -> Result<Option<KeyedRecord>, RecordError> {
        let value = self.values.get(key);
        if key == LAST_WRITE || key.starts_with(PARTS) {
            return Ok(None);
        }
        let Ok(parsed) = key.parse::<RecordKey>() else {
            let Some(value) = value else { return Ok(None) };
            return match key {
                LEADER => Ok(serde_json::from_slice::<Leader>(value).map(|_| None)?),
                EVENTS => Ok(serde_json::from_slice::<EventCounts>(value).map(|_| None)?),
                _ if key.starts_with(COPIES) => Err(RecordError::Copy),
                _ => Err(RecordError::Key),
            };
        };
        let Some(value) = value else { return Ok(Some((parsed, None))) };
        if parsed == RecordKey::Overview {
            self.later_version().map_or(Ok(()), Err)?;
        }
        let record: Record = serde_json::from_slice(&self.whole(value)?)?;
        record.check(&parsed)?;
        Ok(Some((parsed, Some(record))))
    }

    /// Returns a record's value, put together if it is in parts.
    fn whole<'a>(&'a self, value: &'a [u8]) -> Result<Cow<'a, [u8]>, RecordError> {
        let Some(Parts { parts, id }) = parts(value) else { return Ok(value.into()) };
        // The number of a part has a fixed length, so they are in order.
        let found: Vec<&[u8]> = self.parts(&id).map(|(_, part)| part.as_slice()).collect();
        match found.len() == parts {
            true => Ok(found.concat().into()),
            false => Err(RecordError::Parts { got: found.len(), parts }),
        }
    }

    /// Returns the parts of this name, in their order.
    fn parts(&self, id: &str) -> impl Iterator<Item = (&String, &Vec<u8>)> {
        self.values.range(format!("{PARTS}{id}/")..format!("{PARTS}{id}0"))
    }

    /// Returns the keys of parts that no record has; none while a record cannot be read, which may have them.
    pub(super) fn orphans(&self) -> Vec<Write> {
        if !self.unreadable.is_empty() {
            return vec![];
        }
        let records = self.values.iter().filter(|(key, _)| !key.starts_with(PARTS));
        let used: Vec<String> = records.filter_map(|(_, value)| Some(parts(value)?.id)).collect();
        let is_used = |key: &str| used.iter().any(|id| key.starts_with(&format!("{PARTS}{id}/")));
        let parts = self.values.keys().filter(|key| key.starts_with(PARTS) && !is_used(key));
        parts.map(|key| (key.clone(), None)).collect()
    }

    /// Returns the writes by which records change, in their order, and makes them here. A record in parts has a new `id`,
    /// so that it is whole at any time.
    pub(super) fn write(
        &mut self,
        id: &str,
        changes: Vec<(RecordKey, Option<Record>)>,
        event_counts: Option<EventCounts>,
    ) -> Vec<Write> {
        let mut writes = Vec::new();
        let mut cleared = Vec::new();
        for (number, (key, record)) in changes.into_iter().enumerate() {
            let key = key.to_string();
            match self.unreadable.remove(&key) {
                Some(_) => writes.extend(self.copy(&key)),
                None => cleared.extend(self.parts_of(&key)),
            }
            let Some(record) = record else {
                writes.push((key, None));
                continue;
            };
            let value = serde_json::to_vec(&record).expect("a record has no map with odd keys");
            if value.len() <= MAX_VALUE {
                writes.push((key, Some(value)));
                continue;
            }
            let id = format!("{id}-{number}");
            let chunks = value.chunks(MAX_VALUE).enumerate();
            let part = |(part, chunk): (usize, &[u8])| {
                (format!("{PARTS}{id}/{part:08}"), Some(chunk.to_vec()))
            };
            let before = writes.len();
            writes.extend(chunks.map(part));
            let parts = Parts { parts: writes.len() - before, id };
            writes.push((key, Some(serde_json::to_vec(&parts).expect("it is plain"))));
        }
        if let Some(counts) = event_counts {
            writes.extend(self.unreadable.remove(EVENTS).and_then(|_| self.copy(EVENTS)));
            let value = serde_json::to_vec(&counts).expect("kinds of events are words");
            writes.push((EVENTS.to_owned(), Some(value)));
        }
        writes.extend(cleared.into_iter().map(|key| (key, None)));
        writes.iter().for_each(|(key, value)| self.set(key.clone(), value.clone()));
        writes
    }

    /// Returns the keys of a record's parts.
    fn parts_of(&self, key: &str) -> Vec<String> {
        let id = self.values.get(key).and_then(|value| Some(parts(value)?.id));
        id.iter().flat_map(|id| self.parts(id)).map(|(key, _)| key.clone()).collect()
    }

    /// Returns the write that keeps a record which cannot be read and is replaced. One that is longer than this program's
    /// would not fit into a request.
    fn copy(&mut self, key: &str) -> Option<Write> {
        let value = self.values.get(key).filter(|value| value.len() <= MAX_VALUE)?;
        let copy = format!("{COPIES}{key}");
        self.unreadable.insert(copy.clone(), RecordError::Copy.to_string());
        Some((copy, Some(value.clone())))
    }
}

/// Returns the parts of a record's value, if it has parts.
fn parts(value: &[u8]) -> Option<Parts> {
    serde_json::from_slice(value).ok()
}

#[cfg(test)]
mod tests {
    use weft_route::EventKind;

    use super::*;

    /// A job's record of more than one part. Only the order and the number of its flows matter here.
    fn long() -> Record {
        let flow = |port: usize| {
            let (host, port) = (port >> 14, 0xc000 + (port & 0x3fff));
            format!(
                r#"{{"flow":"10.1.0.{host}:{port}>10.2.0.2:4791/udp","cable":0,"rate":"1Gbps"}}"#
            )
        };
        let flows = (0..12_000).map(flow).collect::<Vec<_>>().join(",");
        let job = format!(r#"{{"announced":1,"begun":false,"fullest":2,"flows":[{flows}]}}"#);
        serde_json::from_str(&format!(r#"{{"job":{{"fabric":7,"job":{job}}}}}"#)).unwrap()
    }

    #[test]
    fn a_long_record_is_whole_after_every_write_and_leaves_no_parts() {
        let key = RecordKey::Job("a/b".into());
        let mut leader = Entries::default();
        let mut store = Entries::default();
        let carry_out = |store: &mut Entries, writes: Vec<Write>| {
            let mut whole = 0;
            for (key, value) in writes {
                store.set(key, value);
                whole += usize::from(store.decisions().records.len() == 1);
            }
            whole
        };
        let counts = EventCounts::from([(EventKind::Move, 3)]);
        let writes = leader.write("7-1", vec![(key.clone(), Some(long()))], Some(counts.clone()));
        assert!(writes.len() > 3, "{}", writes.len());
        carry_out(&mut store, writes);
        assert_eq!(store.decisions().records, [(key.clone(), long())]);
        assert_eq!(store.decisions().event_counts, counts);

        let writes = leader.write("7-2", vec![(key.clone(), Some(long()))], None);
        let count = writes.len();
        assert_eq!(
            carry_out(&mut store, writes),
            count,
            "the old one stays until the new one is whole"
        );
        assert!(store.orphans().is_empty());
        // A leader that ends in the middle leaves parts, which the next one removes.
        let writes = leader.write("7-3", vec![(key.clone(), Some(long()))], None);
        carry_out(&mut store, writes.into_iter().take(1).collect());
        assert_eq!(store.orphans().len(), 1);
        let orphans = store.orphans();
        carry_out(&mut store, orphans);
        let mut next = store;
        let writes = next.write("9-1", vec![(key.clone(), None)], None);
        assert!(writes.iter().all(|(_, value)| value.is_none()));
        assert_eq!(next.values.keys().collect::<Vec<_>>(), [EVENTS]);
        assert_eq!(next.read("jobs/a/b"), Some((key, None)));
    }

    /// A record of a controller without jobs.
    fn overview(version: u32) -> String {
        format!(
            r#"{{"overview":{{"version":{version},"next_id":41,"barred":[],"refusals":{{}},
                "stats":{{"moves":40,"undone":1}},"rounds":[]}}}}"#
        )
    }

    fn entries(values: &[(&str, &str)]) -> Entries {
        let mut entries = Entries::default();
        for &(key, value) in values {
            entries.set(key.into(), Some(value.into()));
        }
        entries
    }

    #[test]
    fn a_record_that_cannot_be_read_is_named_and_the_others_are_used() {
        let leader = r#"{"holder":"a/1/2","url":"http://a:1"}"#;
        for (key, value, words) in [
            ("jobs/a", r#"{"parts":2,"id":"7-1-0"}"#, "it has 0 of its 2 parts"),
            ("jobs/a", r#"{"job":{}}"#, "missing field"),
            ("jobs/a", "\u{1}", "expected value"),
            ("jobs/a", &overview(1), "of another kind than its key"),
            ("jobs/a b", "{}", "have no such key"),
            ("of-a-later-version", "anything", "have no such key"),
            ("events", "[]", "invalid type"),
            ("leader", "{}", "missing field"),
            ("unreadable/jobs/a", "{", "a copy of a record"),
        ] {
            let overview = overview(1);
            let mut entries = entries(&[(LEADER, leader), (OVERVIEW, &overview), (key, value)]);
            let records = entries.decisions().records;
            assert_eq!(records.len(), 1, "{key}");
            let (named, reason) = entries.unreadable().first_key_value().unwrap();
            assert!(named == key && reason.contains(words), "{key}: {reason}");
            assert!(entries.has_leader() && entries.later_version().is_none());
            // It is no longer named when it can be read, or is gone.
            entries.set(key.into(), (key == LEADER).then(|| leader.into()));
            entries.read(key);
            assert!(entries.unreadable().is_empty(), "{key}");
        }
    }

    #[test]
    fn records_of_a_later_version_are_known_whatever_else_they_have() {
        let later = overview(RECORDS_VERSION + 1);
        for value in [later.as_str(), r#"{"overview":{"version":2,"anything":[]}}"#] {
            let mut entries = entries(&[(OVERVIEW, value)]);
            assert!(entries.decisions().records.is_empty());
            let reason = &entries.unreadable()[OVERVIEW];
            assert!(reason.contains("version 2, this controller reads version 1"), "{reason}");
            assert!(matches!(entries.later_version(), Some(StateError::Records { got: 2, .. })));
        }
        assert!(entries(&[(OVERVIEW, "damaged")]).later_version().is_none());
    }

    #[test]
    fn a_record_that_cannot_be_read_keeps_its_parts_and_leaves_a_copy_when_it_is_replaced() {
        let (key, value) = ("jobs/a", r#"{"parts":2,"id":"7-1-0"}"#);
        let part = "parts/7-1-0/00000000";
        let mut entries = entries(&[(key, value), (part, "x"), ("parts/5-1-0/00000000", "x")]);
        entries.decisions();
        assert_eq!(entries.orphans(), [], "one of them may be its own");
        entries.write("9-1", vec![(RecordKey::Job("b".into()), Some(long()))], None);
        assert_eq!(entries.values[key], value.as_bytes());
        let writes = entries.write("9-2", vec![(RecordKey::Job("a".into()), None)], None);
        let copy = ("unreadable/jobs/a".to_owned(), Some(value.into()));
        assert_eq!(writes, [copy, (key.into(), None)]);
        assert_eq!(entries.unreadable().keys().collect::<Vec<_>>(), ["unreadable/jobs/a"]);
        assert!(entries.values.contains_key(part));
    }
}
