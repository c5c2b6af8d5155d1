//! The stores of a controller's decisions.
//!
//! | store | where |
//! | --- | --- |
//! | files of this host, or nothing: the controller alone reads them, at its next start | `files.rs` |
//! | etcd, for several controllers: this controller's end | `shared.rs` |
//! | its thread: elections, writes, the decisions of the leader | `candidate.rs` |
//! | the order of a term's writes | `writes.rs` |
//! | records as keys and values | `records.rs` |
//!
//! Decisions are kept before anybody outside acts on them: an order for a router or the answer to a client waits until the
//! save with its number is kept.

mod candidate;
mod files;
pub(super) mod records;
mod shared;
mod writes;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weft_route::{Controller, EventKind, Known, Record, RecordKey};

pub(super) use files::Files;
pub(super) use shared::Shared;

use crate::SteerError;

/// The counts of events since the first controller of a store started, by kind.
pub(super) type EventCounts = BTreeMap<EventKind, u64>;

/// The leader of several controllers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// Its name as a lease holder.
    pub holder: String,
    /// The URL of its page.
    pub url: String,
}

/// The decisions in a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Decisions {
    pub(super) records: Vec<(RecordKey, Record)>,
    pub(super) event_counts: EventCounts,
}

/// A time as leader.
#[derive(Clone, Debug)]
pub(super) struct Term {
    /// Its number, greater than that of every leader before.
    pub(super) number: u64,
    /// The lease of the store that lasts as long as the term.
    pub(super) lease: Arc<weft_etcd::Lease>,
}

/// An event in a shared store.
#[derive(Debug)]
pub(super) enum News {
    /// Another controller leads, or none does.
    Leader(Option<Leader>),
    /// This controller follows, and these are the decisions of the leader.
    All(Decisions),
    /// These decisions of the leader have changed.
    Changed(Vec<(RecordKey, Option<Record>)>),
    /// This controller leads from now on, and these are the decisions of the leader before.
    Elected(Term, Decisions),
    /// This controller does not lead any more.
    Deposed,
    /// The save of this number is kept, and all before.
    Kept(u64),
    /// The store cannot be used, for this reason, or can be used again.
    Fault(Option<String>),
    /// The records that cannot be read at present, by key, with the reason.
    Unreadable(BTreeMap<String, String>),
}

/// A store of decisions.
pub(super) trait Store: fmt::Debug + Send {
    /// Returns the next thing that has happened.
    fn poll(&mut self) -> Option<News> {
        None
    }

    /// Begins to keep what has changed. Returns the number of the save that has it; an earlier one if nothing has changed.
    ///
    /// # Errors
    /// Returns `Io` if a file cannot be written.
    fn save(&mut self, controller: &Controller, counts: &EventCounts) -> Result<u64, SteerError>;

    /// Begins to keep the decisions of this controller in a term; `known` are those that are kept. Returns the number of the
    /// last save of an earlier term: nothing later is kept.
    fn lead(&mut self, _term: u64, _known: Known, _counts: EventCounts) -> u64 {
        0
    }

    /// Ends the lead at once, if this controller leads.
    fn close(&mut self) {}
}
