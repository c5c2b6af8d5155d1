//! Findings about paths that one endpoint shares with the others of its process.

use core::net::SocketAddr;

use weft_units::{Duration, Instant};

use super::PathId;

/// Minimum interval between advertisements of a round trip that changed by half.
const MIN_ADVERTISE_INTERVAL: Duration = Duration::from_millis(100);

/// The interval after which an unchanged round trip is advertised again, before it expires elsewhere.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// The destination of connections that share paths: the peer's address and port, and the source ports that their
/// packets leave from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PeerPorts {
    pub(crate) peer: SocketAddr,
    /// The group of source ports; or the one port of connections with one, which is above all groups.
    pub(crate) group: u16,
}

/// A finding of one endpoint about a path, for the others of its process whose packets leave from the same source
/// ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathNews {
    pub(crate) to: PeerPorts,
    pub(crate) path: PathId,
    pub(crate) finding: Finding,
}

impl PathNews {
    /// Returns the address of the peer that the path leads to.
    pub fn peer(&self) -> SocketAddr {
        self.to.peer
    }
}

/// The content of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The path carries no packets.
    Down,
    /// The path carries packets again.
    Up,
    /// The path loses packets, and is closed for this long.
    Lossy(Duration),
    /// The path's smoothed round-trip time.
    RoundTrip(Duration),
}

/// The last advertised round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Advertised {
    srtt_ns: u32,
    at: Instant,
}

impl Advertised {
    /// Returns `true` if a round trip must be advertised, and then records it as advertised.
    pub(super) fn is_due(&mut self, srtt_ns: u32, now: Instant) -> bool {
        let age = now.since(self.at);
        let changed = self.srtt_ns.abs_diff(srtt_ns) > self.srtt_ns / 2;
        let is_first = self.srtt_ns == 0;
        let is_due =
            is_first || age >= REFRESH_INTERVAL || (changed && age >= MIN_ADVERTISE_INTERVAL);
        if is_due {
            self.note(srtt_ns, now);
        }
        is_due
    }

    /// Records a round trip that all endpoints know.
    pub(super) const fn note(&mut self, srtt_ns: u32, now: Instant) {
        (self.srtt_ns, self.at) = (srtt_ns, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_is_advertised_where_it_changed_by_half_or_is_about_to_expire() {
        let mut advertised = Advertised::default();
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        assert!(advertised.is_due(100, at(1)));
        assert!(!advertised.is_due(300, at(50)), "too soon");
        assert!(!advertised.is_due(140, at(150)), "not by half");
        assert!(advertised.is_due(300, at(150)));
        assert!(!advertised.is_due(160, at(400)));
        assert!(advertised.is_due(140, at(500)));
        assert!(!advertised.is_due(140, at(5_499)));
        assert!(advertised.is_due(140, at(5_500)));
    }
}
