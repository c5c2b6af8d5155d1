//! The state of a link: its marks, and a plausibility check of its port's counters.

use weft_units::{BitRate, ByteCount, Duration, Instant};

use super::marks::Marks;

/// The state of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinkState {
    pub(super) marks: Marks,
    /// The last counters accepted: time and bytes.
    accepted: Option<(Instant, u64)>,
    /// The last counters rejected, which cannot follow the accepted ones: time and bytes.
    rejected: Option<(Instant, u64)>,
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
