//! One move from its decision to its end.

use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::fabric::LinkId;
use crate::flow::Flow;
use crate::installed::{Member, Prefix, Route, Router, Target};

/// Where a move stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The router was told; it has not answered.
    Applying {
        /// When it was told, in nanoseconds.
        since: u64,
    },
    /// The router said yes; its tables are being read.
    Reading {
        /// Since when, in nanoseconds.
        since: u64,
    },
    /// It is installed; the next windows must show that it helps.
    Verifying {
        /// The window in which it was seen installed.
        window: u64,
    },
    /// It has helped.
    Kept,
    /// The router was told to undo it.
    Undoing {
        /// When, in nanoseconds.
        since: u64,
        /// Why, in words.
        why: String,
    },
}

/// A route that a controller gave to a router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Its number.
    pub id: u64,
    /// The router.
    pub router: String,
    /// The destination.
    pub prefix: Prefix,
    /// Next hops from now on.
    pub members: Vec<Member>,
    /// The next hops of a move for the same destination before it; none without one.
    pub previous: Option<Vec<Member>>,
    /// The port that flows leave; empty for a move that was found installed.
    pub port: String,
    /// The router of that port: this one, or one behind it.
    pub port_of: String,
    /// The flows that move with what they sent, bits a second.
    pub flows: Vec<(Flow, u64)>,
    /// What they sent on links they have left: router, port, bits a second.
    pub losses: Vec<(String, String, u64)>,
    /// Why, in words and numbers.
    pub reason: String,
    /// When it was decided, in nanoseconds.
    pub decided: u64,
    /// Where it stands.
    pub stage: Stage,
    /// How often the router was told without answering.
    pub tries: u32,
    /// How often it was installed again after others had removed it.
    pub again: u32,
    /// How full the left link was when it was decided, per mille.
    pub before: u32,
    /// What the links whose load it changes carried in the window before; none where one did not report.
    pub carried: Option<Carried>,
    /// The last window in which one of its flows was sampled.
    pub seen: u64,
    /// What is expected of links: router, port, bits a second.
    pub changes: Vec<(String, String, i64)>,
}

/// What links carried in a window, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Carried {
    /// Bytes sent.
    pub bytes: u64,
    /// Packets marked by ECN.
    pub marks: u64,
}

impl Carried {
    /// Whether that is worse than `before`: more marks a byte, or as many and no byte more. A job that a
    /// move lets run faster is marked more in all, and is not worse off for it.
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
    /// Whether it waits for a router or for a window.
    pub const fn is_open(&self) -> bool {
        !matches!(self.stage, Stage::Kept)
    }

    /// What the router should have installed for the prefix: the members, or nothing.
    pub(super) fn expected(&self) -> Option<&[Member]> {
        match self.stage {
            Stage::Undoing { .. } => self.previous.as_deref(),
            _ => Some(&self.members),
        }
    }
}

/// The members that a router has installed for a steered prefix.
pub(super) fn steered(router: &Router, prefix: Prefix) -> Option<&[Member]> {
    let route = router.routes.iter().find(|route| route.steered && route.to == prefix)?;
    members(router, route)
}

/// The members of a route's group.
pub(super) fn members<'a>(router: &'a Router, route: &Route) -> Option<&'a [Member]> {
    let Target::Group(name) = &route.via else { return None };
    let group = router.groups.iter().find(|group| group.name == *name)?;
    Some(&group.members)
}

/// Whether two sets of next hops are the same ports with the same weights, in any order: the kernel
/// and FRR have orders of their own.
pub(super) fn alike(a: &[Member], b: &[Member]) -> bool {
    let key = |members: &[Member]| {
        let mut key: Vec<_> = members.iter().map(|it| (it.port.clone(), it.weight)).collect();
        key.sort_unstable();
        key
    };
    key(a) == key(b)
}

/// A move that is not to be repeated for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Barred {
    pub(super) router: String,
    pub(super) prefix: Prefix,
    pub(super) members: Vec<Member>,
    /// In nanoseconds.
    pub(super) until: u64,
}

/// What is known of an alarmed port's rounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Episode {
    pub(super) link: LinkId,
    pub(super) rounds: u32,
    /// What was last said of it, so that it is said once.
    pub(super) said: String,
}
