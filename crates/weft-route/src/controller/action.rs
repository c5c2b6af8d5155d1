//! What a controller wants done, and what it says of itself.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::installed::{Member, Prefix};

/// Something for the owner to do. Doing it twice is as good as once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Give a router a route for one address, marked as steered, in place of an earlier one;
    /// then call [`handle_answer`](super::Controller::handle_answer).
    Apply {
        /// The move it belongs to.
        id: u64,
        /// The lease's epoch: whoever applies it refuses an older one ([`Gate`](crate::lease::Gate)).
        epoch: u64,
        /// The router.
        router: String,
        /// The destination, a /32.
        prefix: Prefix,
        /// Its next hops, in order.
        members: Vec<Member>,
    },
    /// Take such a route away; then call [`handle_answer`](super::Controller::handle_answer).
    Withdraw {
        /// The move it belongs to.
        id: u64,
        /// The lease's epoch.
        epoch: u64,
        /// The router.
        router: String,
        /// The destination, a /32.
        prefix: Prefix,
    },
    /// Read what a router has installed; then call
    /// [`handle_tables`](super::Controller::handle_tables).
    Read {
        /// The router.
        router: String,
    },
}

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum What {
    /// An alarm began or became worse.
    Alarm,
    /// An alarm is over.
    Cleared,
    /// A move was decided.
    Move,
    /// No move was found.
    NoMove,
    /// The router has installed a move.
    Applied,
    /// A move has helped.
    Kept,
    /// A move did not help, or harmed: it is undone.
    Undo,
    /// A move's flows are gone, and its route is taken away.
    Idle,
    /// An undone move is gone from the router.
    Undone,
    /// A router refused a change, or did something else.
    Refused,
    /// A router does not answer.
    Silent,
    /// Tables changed that the controller had not changed.
    Drift,
    /// A link went down or came back.
    Link,
    /// Telemetry that is not acted upon.
    Doubt,
    /// After the last round there is still an alarm.
    GaveUp,
    /// Ports were planned for a job, or it has ended.
    Job,
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stats {
    /// Alarms that began or became worse.
    pub alarms: u64,
    /// Alarms that are over, by the rounds of moves they had: none, one, two, three or more.
    pub cleared_after: [u64; 4],
    /// Moves that were decided.
    pub moves: u64,
    /// Moves that have helped.
    pub kept: u64,
    /// Moves that were undone.
    pub undone: u64,
    /// Changes that routers refused.
    pub refused: u64,
    /// Ports that were left alone after the last round.
    pub gave_up: u64,
    /// Reports and samples that were not acted upon.
    pub doubts: u64,
}

impl Stats {
    pub(super) const fn count(&mut self, what: What) {
        let counter = match what {
            What::Alarm => &mut self.alarms,
            What::Move => &mut self.moves,
            What::Kept => &mut self.kept,
            What::Undo => &mut self.undone,
            What::Refused => &mut self.refused,
            What::GaveUp => &mut self.gave_up,
            _ => return,
        };
        *counter = counter.saturating_add(1);
    }
}

/// One line of what happened, for people and pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, in nanoseconds.
    pub at: u64,
    /// What.
    pub what: What,
    /// The router.
    pub router: String,
    /// The port, where it concerns one.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub port: String,
    /// The move, where it concerns one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub id: Option<u64>,
    /// In words and numbers.
    pub text: String,
}
