//! The state of a link from its port's counters and samples: marked packets, and a plausibility check of counters.

use weft_route::PortReport;
use weft_units::{BitRate, ByteCount, Duration, Instant};

/// The state of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinkState {
    pub(super) marks: Marks,
    /// The last counters accepted: time and bytes.
    accepted: Option<(Instant, u64)>,
    /// The last counters rejected, which cannot follow the accepted ones: time and bytes.
    rejected: Option<(Instant, u64)>,
}

/// Marked packets of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    /// Number of marked packets that crossed it since the last report.
    pub(super) crossed: u64,
    /// Number of packets that arrived marked at the router that sends on it, since the last report.
    pub(super) entered: u64,
    /// Excess of arrived over crossed packets, due to sampling; it is subtracted once, from the next report.
    excess: u64,
    /// Number of packets marked on this link since the start.
    total: u64,
}

/// Tolerance for the delay between reading a counter and receiving it.
const TIMESTAMP_TOLERANCE: Duration = Duration::from_millis(100);

impl LinkState {
    /// Returns `true` if a port can have sent `bytes` since its start, given its earlier counters. Counters that
    /// decreased, or that grew beyond the link's capacity, are accepted when the next ones follow them, because the
    /// router has restarted. One forged report changes nothing.
    pub(super) fn accepts(&mut self, now: Instant, bytes: u64, rate: BitRate) -> bool {
        let follows = |before: Option<(Instant, u64)>| {
            before.is_some_and(|(at, counted)| {
                let span = now.since(at);
                let ByteCount(max_bytes) = rate.bytes_in(span + TIMESTAMP_TOLERANCE + span / 50);
                bytes.checked_sub(counted).is_some_and(|sent| sent <= max_bytes)
            })
        };
        let is_accepted =
            self.accepted.is_none() || follows(self.accepted) || follows(self.rejected);
        if is_accepted {
            (self.accepted, self.rejected) = (Some((now, bytes)), None);
        } else {
            self.rejected = Some((now, bytes));
        }
        is_accepted
    }

    /// Returns a report of the port's counters, with the marks observed since the last one.
    pub(super) fn report(
        &mut self,
        link: weft_route::LinkId,
        at: Instant,
        bytes: u64,
    ) -> PortReport {
        PortReport { link, at, bytes, marks: self.marks.update_total() }
    }
}

impl Marks {
    /// Adds the marks observed since the last report and returns the total.
    fn update_total(&mut self) -> u64 {
        let arrived = self.entered + self.excess;
        self.total += self.crossed.saturating_sub(arrived);
        self.excess = self.entered.saturating_sub(self.crossed);
        (self.crossed, self.entered) = (0, 0);
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns for each of these counters, one per second, `true` if a link of 8 Mb/s accepts it: the link carries 1
    /// MB/s.
    fn accepted(counters: &[u64]) -> Vec<bool> {
        let (mut known, rate) = (LinkState::default(), BitRate::bps(8_000_000).unwrap());
        let at = |second| Instant::EPOCH + Duration::from_secs(second);
        let report =
            |(second, &bytes): (usize, &u64)| known.accepts(at(second as u64), bytes, rate);
        counters.iter().enumerate().map(report).collect()
    }

    #[test]
    fn a_forged_leap_changes_nothing() {
        assert_eq!(
            accepted(&[0, 900_000, 90_000_000, 2_000_000, 2_900_000]),
            [true, true, false, true, true]
        );
        assert_eq!(accepted(&[9_000_000, 0, 9_100_000]), [true, false, true]);
    }

    #[test]
    fn a_restarted_router_is_accepted_when_its_counters_continue() {
        assert_eq!(accepted(&[9_000_000, 0, 900_000, 1_800_000]), [true, false, true, true]);
    }
}
