//! The history that the collector keeps: the ends of a pair, a pair at one time, and the paths of a connection.

use serde::Serialize;

/// An end of a pair: a program, a host, or an address that belongs to no known host or program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct End {
    /// The host's name, or the address.
    pub(super) host: String,
    /// The program's name and process number; `None` if the end is a whole host.
    pub(super) program: Option<(String, u64)>,
}

/// The two ends of a pair.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Ends {
    pub(super) from: End,
    pub(super) to: End,
}

impl Ends {
    /// Returns the hosts of the two ends.
    pub(super) fn hosts(&self) -> Self {
        let whole = |end: &End| End { host: end.host.clone(), program: None };
        Self { from: whole(&self.from), to: whole(&self.to) }
    }
}

/// A pair at one time in the past.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Point {
    /// The time, ms since 1970.
    pub(super) at: u64,
    pub(super) bytes: f64,
    pub(super) p50: Option<u64>,
    pub(super) p99: Option<u64>,
}

/// The paths of a connection, as last reported.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Paths {
    /// The time of the report, ms since 1970.
    pub(super) at: u64,
    pub(super) host: String,
    pub(super) program: String,
    pub(super) pid: u64,
    pub(super) peer: String,
    pub(super) sent: u64,
    pub(super) retransmits: u64,
    /// Number, smoothed round-trip time in ns, packets lost, and `true` if the path works.
    pub(super) paths: Vec<(u64, Option<u64>, u64, bool)>,
}
