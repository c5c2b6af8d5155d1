//! Changes of prefixes from a revision on, across broken connections.

mod follower;
mod ranges;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::connections::Shared;
use crate::proto::Event;
use crate::proto::event::EventType;
use crate::{EtcdError, KeyValue, Revision};
use follower::Follower;
use ranges::Ranges;

/// Maximum number of events that wait for the reader; etcd holds back the others.
const MAX_WAITING: usize = 64;

/// The changes of one or more prefixes, which share a stream. It goes on by itself after a break, without a gap.
#[derive(Debug)]
pub struct Watch {
    events: mpsc::Receiver<WatchEvent>,
    ranges: Arc<Ranges>,
    task: AbortHandle,
    shared: Arc<Shared>,
}

/// An event of a watch.
#[derive(Debug)]
pub enum WatchEvent {
    /// Changes of one prefix in their order. Those of one revision come together.
    Changes {
        /// The revision of the last one.
        revision: Revision,
        /// The changes.
        changes: Vec<Change>,
    },
    /// A member sends changes from now on: at first, and after each break.
    Connected {
        /// The member. The client's other requests may have gone on to another one by now, or have none.
        endpoint: String,
    },
    /// The connection broke; the watch tries to go on.
    Disconnected(EtcdError),
    /// The history that a prefix would go on with is gone, and the prefix is watched no longer: list it, and add it again.
    Compacted {
        /// The prefix.
        prefix: String,
        /// The oldest revision that is left, as far as it is known.
        revision: Revision,
    },
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was set.
    Put(KeyValue),
    /// It was deleted, or its lease ran out.
    Delete {
        /// The key.
        key: Vec<u8>,
        /// The revision.
        revision: Revision,
    },
}

impl Watch {
    pub(crate) fn start(shared: &Arc<Shared>, prefix: &str, from: Revision) -> Self {
        let (sender, events) = mpsc::channel(MAX_WAITING);
        let ranges = Arc::new(Ranges::default());
        ranges.add(prefix, from);
        let connections = Arc::clone(&shared.connections);
        let follower = Follower { connections, ranges: Arc::clone(&ranges), sender };
        let task = shared.runtime.spawn(follower.run());
        Self { events, ranges, task, shared: Arc::clone(shared) }
    }

    /// Adds the changes of another prefix, from the revision `from` on.
    pub fn add(&self, prefix: &str, from: Revision) {
        self.ranges.add(prefix, from);
    }

    /// Leaves a prefix out from now on. Changes that have arrived are still returned.
    pub fn remove(&self, prefix: &str) {
        self.ranges.remove(prefix);
    }

    /// Returns the next event; `None` if there is none within `span`.
    pub fn next(&mut self, span: Duration) -> Option<WatchEvent> {
        let Self { events, shared, .. } = self;
        shared.runtime.block_on(async { timeout(span, events.recv()).await }).ok().flatten()
    }

    /// Returns the next event, if one waits.
    pub fn try_next(&mut self) -> Option<WatchEvent> {
        self.events.try_recv().ok()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Change {
    fn of(event: Event) -> Option<Self> {
        let is_delete = event.r#type == i32::from(EventType::Delete);
        let pair = KeyValue::from(event.kv?);
        Some(match is_delete {
            true => Self::Delete { key: pair.key, revision: pair.modified },
            false => Self::Put(pair),
        })
    }

    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Put(pair) => &pair.key,
            Self::Delete { key, .. } => key,
        }
    }

    /// Returns the revision of the change.
    pub const fn revision(&self) -> Revision {
        match self {
            Self::Put(pair) => pair.modified,
            Self::Delete { revision, .. } => *revision,
        }
    }
}
