//! Findings about paths that one endpoint leaves to the others of its process.

use core::net::SocketAddr;

use weft_units::{Duration, Instant};

use super::PathId;
use super::peers::PeerPorts;

/// A round trip is told again where it changed by half, at most this often.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// One that did not change is told again after this, before it expires elsewhere.
const REFRESHED_AFTER: Duration = Duration::from_secs(5);

/// One endpoint's finding about a path, for the others of its process whose packets leave from the same source
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

/// The finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The path carries nothing.
    Down,
    /// It carries packets again.
    Up,
    /// It loses packets, and is left for so long.
    Lossy(Duration),
    /// A round trip takes so long.
    RoundTrip(Duration),
}

/// The round trip that others were told last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    srtt_ns: u32,
    at: Instant,
}

impl Told {
    /// Returns whether a round trip is to be told; if so, it counts as told.
    pub(super) fn is_news(&mut self, srtt_ns: u32, now: Instant) -> bool {
        let age = now.since(self.at);
        let changed = self.srtt_ns.abs_diff(srtt_ns) > self.srtt_ns / 2;
        let is_first = self.srtt_ns == 0;
        let is_news = is_first || age >= REFRESHED_AFTER || (changed && age >= TOLD_EVERY);
        if is_news {
            self.note(srtt_ns, now);
        }
        is_news
    }

    /// All know this round trip.
    pub(super) const fn note(&mut self, srtt_ns: u32, now: Instant) {
        (self.srtt_ns, self.at) = (srtt_ns, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_is_told_where_it_changed_by_half_or_is_about_to_expire() {
        let mut told = Told::default();
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        assert!(told.is_news(100, at(1)));
        assert!(!told.is_news(300, at(50)), "too soon");
        assert!(!told.is_news(140, at(150)), "not by half");
        assert!(told.is_news(300, at(150)));
        assert!(!told.is_news(160, at(400)));
        assert!(told.is_news(140, at(500)));
        assert!(!told.is_news(140, at(5_499)));
        assert!(told.is_news(140, at(5_500)));
    }
}
