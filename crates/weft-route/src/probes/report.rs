//! A host's report of its probes, as it arrives from outside, and the faults for which it is refused.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use weft_units::Duration;

use crate::fabric::Fabric;
use crate::flow::Flow;

/// The probes of one host in one interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeReport {
    /// The address from which the host sends its probes.
    pub source: IpAddr,
    /// The UDP port at which hosts answer probes.
    pub port: u16,
    /// The results, one for each path.
    pub paths: Vec<ProbedPath>,
}

/// The probes to one destination from one source port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbedPath {
    /// The host that answers.
    pub destination: IpAddr,
    /// The UDP source port of the probes, to which the answers return.
    pub source_port: u16,
    /// Number of probes that were answered or are overdue, at least 1.
    pub sent: u32,
    /// Number of these probes without an answer in time.
    pub lost: u32,
    /// The round-trip times of the answered probes; none if all were lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<RoundTrip>,
}

/// Round-trip times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundTrip {
    /// The lowest.
    pub min_ns: u64,
    /// The median.
    pub median_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
}

/// The reason why a report is refused as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// A report without paths, or with more than one host may have.
    #[error("a report of {0} paths; it has 1 to {MAX_PATHS_PER_SOURCE}")]
    PathCount(usize),
    /// A source that the fabric does not have, or that has several cables.
    #[error("the source {0} is no host of the fabric with one cable")]
    Source(IpAddr),
    /// A destination that the fabric does not have, that is the source, or that is of another family.
    #[error(
        "path {path}: the destination {address} is no other host of the fabric of the same address family"
    )]
    Destination {
        /// The index of the path in the report.
        path: usize,
        /// The destination.
        address: IpAddr,
    },
    /// Counts that cannot be.
    #[error(
        "path {path}: {lost} of {sent} probes lost; sent is 1 to {MAX_SENT}, and lost at most that"
    )]
    Counts {
        /// The index of the path in the report.
        path: usize,
        /// Number of probes sent.
        sent: u32,
        /// Number of probes lost.
        lost: u32,
    },
    /// Round-trip times that cannot be.
    #[error(
        "path {path}: round-trip times are given where a probe was answered, in order, and at most {MAX_ROUND_TRIP}"
    )]
    RoundTrip {
        /// The index of the path in the report.
        path: usize,
    },
    /// More paths than are kept for a host.
    #[error(
        "the host has reported {MAX_PATHS_PER_SOURCE} other paths; keep its source ports, or wait a minute"
    )]
    TooManyOfSource,
    /// More paths than are kept for all hosts.
    #[error("{MAX_PATHS} paths are probed already; use fewer `--peers` or `--ports`")]
    TooMany,
}

/// Maximum number of paths of one host.
pub(super) const MAX_PATHS_PER_SOURCE: usize = 1024;
/// Maximum number of paths of all hosts: 2,048 hosts with 32 each.
pub(super) const MAX_PATHS: usize = 1 << 16;
/// Maximum number of probes of a path in one report.
const MAX_SENT: u32 = 1 << 20;
/// The longest round-trip time of an answered probe.
const MAX_ROUND_TRIP: Duration = Duration::from_secs(10);
/// The IP protocol of probes.
const UDP: u8 = 17;

impl ProbeReport {
    /// Checks the report, and returns the flow of each path's probes.
    ///
    /// # Errors
    /// Returns the first fault.
    pub(super) fn flows(&self, fabric: &Fabric) -> Result<Vec<Flow>, ProbeError> {
        if !(1..=MAX_PATHS_PER_SOURCE).contains(&self.paths.len()) {
            return Err(ProbeError::PathCount(self.paths.len()));
        }
        let source = fabric.host(self.source);
        if source.is_none_or(|host| fabric.links_of_host(host).len() != 1) {
            return Err(ProbeError::Source(self.source));
        }
        let flow = |(path, it): (usize, &ProbedPath)| {
            it.check(path)?;
            let to = SocketAddr::new(it.destination, self.port);
            let flow = Flow::new(SocketAddr::new(self.source, it.source_port), to, UDP);
            let other =
                fabric.host(it.destination).filter(|_| fabric.host(it.destination) != source);
            let fault = ProbeError::Destination { path, address: it.destination };
            other.and(flow).ok_or(fault)
        };
        self.paths.iter().enumerate().map(flow).collect()
    }
}

impl ProbedPath {
    fn check(&self, path: usize) -> Result<(), ProbeError> {
        let Self { sent, lost, round_trip, .. } = *self;
        if !(1..=MAX_SENT).contains(&sent) || lost > sent {
            return Err(ProbeError::Counts { path, sent, lost });
        }
        let is_in_order = |it: RoundTrip| {
            it.min_ns <= it.median_ns
                && it.median_ns <= it.p99_ns
                && it.p99_ns <= MAX_ROUND_TRIP.as_nanos()
        };
        let is_possible = round_trip.map_or(lost == sent, |it| lost < sent && is_in_order(it));
        if is_possible { Ok(()) } else { Err(ProbeError::RoundTrip { path }) }
    }
}
