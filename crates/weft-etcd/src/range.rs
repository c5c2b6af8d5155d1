//! Keys, their values, and the range of a prefix.

use std::fmt;

use crate::proto::{self, RangeResponse};

/// A number of etcd's history: each change has the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub i64);

impl Revision {
    /// Returns the next revision.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The number of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

/// The number as etcd's own commands show it.
impl fmt::Display for LeaseId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:x}", self.0)
    }
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key. Other programs may write keys that are no text.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// The revision at which the key was created.
    pub created: Revision,
    /// The revision of its last change.
    pub modified: Revision,
    /// The lease with which it is deleted.
    pub lease: Option<LeaseId>,
}

/// The keys of a prefix at one revision, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The revision: a watch from the next one on misses nothing.
    pub revision: Revision,
    /// The keys with their values.
    pub entries: Vec<KeyValue>,
}

impl From<proto::KeyValue> for KeyValue {
    fn from(it: proto::KeyValue) -> Self {
        Self {
            key: it.key,
            value: it.value,
            created: Revision(it.create_revision),
            modified: Revision(it.mod_revision),
            lease: (it.lease != 0).then_some(LeaseId(it.lease)),
        }
    }
}

/// Returns etcd's revision when it answered.
pub(crate) fn revision_of(answer: &RangeResponse) -> Revision {
    Revision(answer.header.as_ref().map_or(0, |header| header.revision))
}

/// Returns the first key and the end of a prefix's range, as etcd wants them.
pub(crate) fn of_prefix(prefix: &str) -> (Vec<u8>, Vec<u8>) {
    let mut end = prefix.as_bytes().to_vec();
    // The bytes of UTF-8 are less than 0xff, so that the last one can be increased.
    match end.last_mut() {
        Some(last) => *last += 1,
        // All keys: from the first one on, without an end.
        None => return (vec![0], vec![0]),
    }
    (prefix.as_bytes().to_vec(), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_its_successor() {
        assert_eq!(of_prefix("/a/"), (b"/a/".to_vec(), b"/a0".to_vec()));
        assert_eq!(of_prefix("\u{10ffff}").1, [0xf4, 0x8f, 0xbf, 0xc0]);
        assert_eq!(of_prefix(""), (vec![0], vec![0]));
    }
}
