//! The actions that a controller requests, and the events that it reports.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::installed::{Member, Prefix};

/// An action for the owner to carry out. Actions are idempotent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Install a route for one address at a router, marked as steered, in place of an earlier one; then call
    /// [`handle_answer`](super::Controller::handle_answer).
    Apply {
        /// The number of the move.
        id: u64,
        /// The epoch of the lease: older epochs must be refused ([`Gate`](crate::lease::Gate)).
        epoch: u64,
        /// The router.
        router: String,
        /// The destination, a /32 or /128.
        prefix: Prefix,
        /// The next hops, in order.
        members: Vec<Member>,
    },
    /// Remove such a route; then call [`handle_answer`](super::Controller::handle_answer).
    Withdraw {
        /// The number of the move.
        id: u64,
        /// The epoch of the lease.
        epoch: u64,
        /// The router.
        router: String,
        /// The destination, a /32 or /128.
        prefix: Prefix,
    },
    /// Read the installed state of a router; then call [`handle_tables`](super::Controller::handle_tables).
    Read {
        /// The router.
        router: String,
    },
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EventKind {
    /// An alarm began or its level rose.
    Alarm,
    /// An alarm ended.
    Cleared,
    /// A move was decided.
    Move,
    /// No move was found.
    NoMove,
    /// The router has installed a move.
    Applied,
    /// A move has helped.
    Kept,
    /// A move did not help, or did harm, and is being undone.
    Undo,
    /// A move's flows have ended, and its route is being withdrawn.
    Idle,
    /// A move was undone at the router.
    Undone,
    /// A router refused a change, or installed another route.
    Refused,
    /// A router does not answer.
    Silent,
    /// Tables differ from the controller's moves, or could not be used.
    Drift,
    /// A link went down or came back.
    Link,
    /// A report or sample was ignored.
    Doubt,
    /// The alarm lasts after the last round of moves.
    GaveUp,
    /// Ports were planned for a job, or a job ended.
    Job,
}

/// Event counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stats {
    /// Number of alarms that began or whose level rose.
    pub alarms: u64,
    /// Number of alarms that ended, by their rounds of moves: none, one, two, three or more.
    pub cleared_after: [u64; 4],
    /// Number of moves decided.
    pub moves: u64,
    /// Number of moves that helped.
    pub kept: u64,
    /// Number of moves that were undone.
    pub undone: u64,
    /// Number of changes that routers refused.
    pub refused: u64,
    /// Number of ports without further moves after the last round.
    pub gave_up: u64,
    /// Number of reports and samples ignored.
    pub doubts: u64,
}

impl Stats {
    pub(super) const fn count(&mut self, kind: EventKind) {
        let counter = match kind {
            EventKind::Alarm => &mut self.alarms,
            EventKind::Move => &mut self.moves,
            EventKind::Kept => &mut self.kept,
            EventKind::Undo => &mut self.undone,
            EventKind::Refused => &mut self.refused,
            EventKind::GaveUp => &mut self.gave_up,
            _ => return,
        };
        *counter = counter.saturating_add(1);
    }
}

/// An event, for logs and for the controller's page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The time in nanoseconds.
    pub at: u64,
    /// The kind.
    #[serde(rename = "what")]
    pub kind: EventKind,
    /// The router; empty if there is none.
    pub router: String,
    /// The port, if the event concerns one.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub port: String,
    /// The move, if the event concerns one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub id: Option<u64>,
    /// The details in words and numbers.
    pub text: String,
}
