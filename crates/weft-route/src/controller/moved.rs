//! One move from its decision to its end.

use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::fabric::LinkId;
use crate::flow::Flow;
use crate::installed::{Member, Prefix, Route, Router, Target};

/// The stage of a move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The change was sent; the router has not answered.
    Applying {
        /// The time at which it was sent, in nanoseconds.
        since: u64,
    },
    /// The router confirmed the change; its tables are being read.
    Reading {
        /// The time of the confirmation, in nanoseconds.
        since: u64,
    },
    /// The route is installed; the next windows must show that it helps.
    Verifying {
        /// The window in which it was found installed.
        window: u64,
    },
    /// The move has helped.
    Kept,
    /// The undoing change was sent.
    Undoing {
        /// The time at which it was sent, in nanoseconds.
        since: u64,
        /// The reason, in words.
        why: String,
    },
}

/// A route that a controller gave to a router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The number of the move.
    pub id: u64,
    /// The router.
    pub router: String,
    /// The destination.
    pub prefix: Prefix,
    /// The new next hops.
    pub members: Vec<Member>,
    /// The next hops of an earlier move for the same destination; none if there is none.
    pub previous: Option<Vec<Member>>,
    /// The port that flows leave; empty for a route that was found installed.
    pub port: String,
    /// The router of that port: this router, or one behind it.
    pub port_of: String,
    /// The flows that move with their rates, in bits per second.
    pub flows: Vec<(Flow, u64)>,
    /// Their rates on the links that they left: router, port, bits per second.
    pub losses: Vec<(String, String, u64)>,
    /// The reason in words and numbers.
    pub reason: String,
    /// The time of the decision, in nanoseconds.
    pub decided: u64,
    /// The present stage.
    pub stage: Stage,
    /// Number of requests that the router did not answer.
    pub tries: u32,
    /// Number of times that the route was installed again after others had removed it.
    pub again: u32,
    /// The utilisation of the link that flows leave at the decision, in thousandths.
    pub before: u32,
    /// The traffic of the links whose load it changes in the window before; none if one of them did not report.
    pub carried: Option<Carried>,
    /// The last window in which one of its flows was sampled.
    pub seen: u64,
    /// The expected changes of load: router, port, bits per second.
    pub changes: Vec<(String, String, i64)>,
}

/// The traffic of some links in a window, summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Carried {
    /// Number of bytes sent.
    pub bytes: u64,
    /// Number of packets marked by ECN.
    pub marks: u64,
}

impl Carried {
    /// Returns `true` if this is worse than `before`: more marks per byte, or as many and no more bytes. A job that
    /// runs faster after a move gets more marks in total, which is not worse.
    pub(super) fn is_worse_than(self, before: Self) -> bool {
        let crosswise = |marks: u64, bytes: u64| u128::from(marks) * u128::from(bytes);
        match crosswise(self.marks, before.bytes).cmp(&crosswise(before.marks, self.bytes)) {
            Ordering::Less => false,
            Ordering::Equal => self.bytes <= before.bytes,
            Ordering::Greater => true,
        }
    }
}

impl Display for Carried {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{} marks in {} MB", self.marks, self.bytes / 1_000_000)
    }
}

impl Move {
    /// Returns `true` if the move waits for a router or for a window.
    pub const fn is_open(&self) -> bool {
        !matches!(self.stage, Stage::Kept)
    }

    /// Returns the windows that it names.
    pub(super) fn windows(&self) -> impl Iterator<Item = u64> + use<> {
        let window = match self.stage {
            Stage::Verifying { window } => window,
            _ => self.seen,
        };
        [self.seen, window].into_iter()
    }

    /// Returns the members that the router should have installed for the prefix, if any.
    pub(super) fn expected(&self) -> Option<&[Member]> {
        match self.stage {
            Stage::Undoing { .. } => self.previous.as_deref(),
            _ => Some(&self.members),
        }
    }
}

/// Returns the members that a router has installed for a steered prefix.
pub(super) fn steered(router: &Router, prefix: Prefix) -> Option<&[Member]> {
    let route = router.routes.iter().find(|route| route.steered && route.to == prefix)?;
    members(router, route)
}

/// Returns the members of a route's group.
pub(super) fn members<'a>(router: &'a Router, route: &Route) -> Option<&'a [Member]> {
    let Target::Group(name) = &route.via else { return None };
    let group = router.groups.iter().find(|group| group.name == *name)?;
    Some(&group.members)
}

/// Returns `true` if two sets of next hops have the same ports with the same weights, in any order: the kernel and FRR
/// use different orders.
pub(super) fn have_same_ports(a: &[Member], b: &[Member]) -> bool {
    let key = |members: &[Member]| {
        let mut key: Vec<_> = members.iter().map(|it| (it.port.clone(), it.weight)).collect();
        key.sort_unstable();
        key
    };
    key(a) == key(b)
}

/// A move that is not to be tried again for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barred {
    /// The router.
    pub router: String,
    /// The destination.
    pub prefix: Prefix,
    /// The next hops.
    pub members: Vec<Member>,
    /// The end of that time, in nanoseconds.
    pub until: u64,
}

/// The rounds of an alarmed port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Episode {
    pub(super) link: LinkId,
    pub(super) rounds: u32,
    /// The text of its last event; an equal text is not emitted again.
    #[serde(rename = "said")]
    pub(super) last_text: String,
}
