//! Detection of lossy paths: a path that loses much more than the others is closed. Loss on one path means a bad path,
//! loss on all means congestion.
//!
//! Probes cannot show that a lossy path has recovered: nine of ten are answered where a tenth is lost. The path is used
//! again after a while, and its losses then, over all connections, close it for twice as long.

use weft_units::{Duration, Instant};

use super::Record;
use crate::path::PathId;

/// Minimum number of lost packets for a meaningful share.
const MIN_LOST: u32 = 4;

/// The inverse of the share of lost packets that makes a path lossy: 1/50, or 2 %.
const MIN_LOSS_ONE_IN: u32 = 50;

/// Minimum ratio of the path's share of lost packets to that of the other paths together.
const MIN_LOSS_RATIO: u32 = 4;

/// Minimum number of packets of the other paths for a comparison.
const MIN_OTHERS: u32 = 32;

/// Maximum number of packets counted: counts are halved when there are more.
const MAX_COUNTED: u32 = 1024;

/// Maximum age of counts; older ones are dropped.
const MAX_AGE: Duration = Duration::from_secs(10);

/// The time for which a path is closed the first time; it doubles with each further closing, up to 16 times as long.
const FIRST_HOLD: Duration = Duration::from_secs(1);
const MAX_DOUBLINGS: u8 = 4;

/// The time without closing after which a path's hold starts anew.
const HOLD_RESET_AFTER: Duration = Duration::from_secs(60);

/// The counts of one path's packets, acknowledged and lost, over all connections.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::path::peers) struct Lossy {
    acked: u32,
    lost: u32,
    /// The time of the last count.
    counted_at: Instant,
    /// While the path is closed, the time at which it opens; afterwards, the time at which it opened.
    /// [`Instant::EPOCH`] before the first closing.
    until: Instant,
    closed: bool,
    /// Number of consecutive closings.
    closings: u8,
}

impl Lossy {
    pub(in crate::path::peers) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Adds packets to the counts: acknowledged, and lost.
    pub(in crate::path::peers) fn count(&mut self, (acked, lost): (u16, u32), now: Instant) {
        if (acked, lost) == (0, 0) || self.closed {
            return;
        }
        if now.since(self.counted_at) > MAX_AGE {
            (self.acked, self.lost) = (0, 0);
        }
        self.counted_at = now;
        self.acked += u32::from(acked);
        self.lost = self.lost.saturating_add(lost);
        while self.sent() > MAX_COUNTED {
            self.acked /= 2;
            self.lost /= 2;
        }
    }

    /// Closes the paths that lose much more than the others, at most half of all; returns their number. A path whose
    /// latest packets were lost may be dead, which consecutive losses detect.
    pub(in crate::path::peers) fn evaluate(
        paths: &mut [Record],
        now: Instant,
        mut on_closed: impl FnMut(PathId, Duration),
    ) -> u16 {
        let limit = paths.len() / 2;
        let mut closed_in_all = paths.iter().filter(|record| record.lossy.closed).count();
        let open = || paths.iter().map(|record| record.lossy).filter(|lossy| !lossy.closed);
        let (sent, lost) = open().fold((0, 0), |(sent, lost), lossy| {
            (sent + u64::from(lossy.sent()), lost + u64::from(lossy.lost))
        });
        let mut closed = 0;
        for (path, record) in (0..).zip(paths) {
            if record.is_closed() || record.is_suspected() {
                continue;
            }
            let lossy = &mut record.lossy;
            let (own_sent, own_lost) = (u64::from(lossy.sent()), u64::from(lossy.lost));
            let others = (sent.saturating_sub(own_sent), lost.saturating_sub(own_lost));
            if closed_in_all < limit && lossy.is_worse_than(others) {
                let hold = lossy.next_hold(now);
                lossy.close(hold, now);
                on_closed(PathId(path), hold);
                (closed_in_all, closed) = (closed_in_all + 1, closed + 1);
            }
        }
        closed
    }

    /// Closes the path for `hold`.
    pub(in crate::path::peers) fn close(&mut self, hold: Duration, now: Instant) {
        self.closings = self.closings.saturating_add(1);
        (self.acked, self.lost) = (0, 0);
        (self.closed, self.until) = (true, now + hold);
    }

    /// Opens the path if its time has passed; returns `true` if it did.
    pub(in crate::path::peers) fn expire(&mut self, now: Instant) -> bool {
        let is_over = self.closed && now >= self.until;
        if is_over {
            self.closed = false;
        }
        is_over
    }

    fn next_hold(&mut self, now: Instant) -> Duration {
        if now.since(self.until) > HOLD_RESET_AFTER {
            self.closings = 0;
        }
        FIRST_HOLD * (1 << self.closings.min(MAX_DOUBLINGS))
    }

    const fn sent(&self) -> u32 {
        self.acked + self.lost
    }

    fn is_worse_than(&self, (sent, lost): (u64, u64)) -> bool {
        let (own_sent, own_lost) = (u64::from(self.sent()), u64::from(self.lost));
        self.lost >= MIN_LOST
            && self.lost * MIN_LOSS_ONE_IN >= self.sent()
            && sent >= u64::from(MIN_OTHERS)
            && own_lost * sent >= u64::from(MIN_LOSS_RATIO) * lost * own_sent
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn seconds(count: u64) -> Instant {
        Instant::from_nanos(count * 1_000_000_000)
    }

    /// Adds counts to each path; returns the paths that close, and for how many seconds.
    fn closed<const N: usize>(
        paths: &mut [Record; N],
        counts: [(u16, u32); N],
        now: u64,
    ) -> Vec<(u16, u64)> {
        for (record, counts) in paths.iter_mut().zip(counts) {
            record.lossy.expire(seconds(now));
            record.lossy.count(counts, seconds(now));
        }
        let mut closed = Vec::new();
        Lossy::evaluate(paths, seconds(now), |path, hold| {
            closed.push((path.0, hold.as_nanos() / 1_000_000_000));
        });
        closed
    }

    fn fresh<const N: usize>() -> [Record; N] {
        [Record::default(); N]
    }

    #[test]
    fn a_path_closes_that_loses_a_tenth_where_the_others_lose_nothing() {
        let good = (40, 0);
        assert_eq!(closed(&mut fresh(), [good, (36, 4), good, good], 1), [(1, 1)]);
        assert_eq!(closed(&mut fresh(), [good, (36, 3), good, good], 1), [], "too few");
        assert_eq!(closed(&mut fresh(), [(1000, 0), (990, 10), good, good], 1), [], "one percent");
        assert_eq!(closed(&mut fresh(), [(36, 4)], 1), [], "there is no other");
        assert_eq!(closed(&mut fresh(), [(0, 0), (36, 4), (31, 0)], 1), [], "too few others");
    }

    #[test]
    fn loss_on_all_paths_closes_none_and_half_of_them_at_most_are_closed() {
        assert_eq!(closed(&mut fresh(), [(90, 10), (70, 30), (88, 12), (91, 9)], 1), []);
        let bad = (50, 50);
        let one = closed(&mut fresh(), [(900, 0), bad, bad, bad], 1);
        assert!(one.len() <= 2, "{one:?}");
        assert_eq!(closed(&mut fresh(), [bad, bad], 1), []);
    }

    #[test]
    fn each_time_in_a_row_it_is_left_for_twice_as_long_up_to_sixteen_seconds() {
        let mut paths = fresh();
        let (mut now, mut holds) = (1, Vec::new());
        for _ in 0..7 {
            let [(_, hold)] = closed(&mut paths, [(40, 0), (30, 10)], now)[..] else { panic!() };
            holds.push(hold);
            assert_eq!(closed(&mut paths, [(40, 0), (30, 10)], now), [], "it is closed already");
            now += hold;
        }
        assert_eq!(holds, [1, 2, 4, 8, 16, 16, 16]);
        // The path worked for more than a minute.
        assert_eq!(closed(&mut paths, [(40, 0), (30, 10)], now + 61), [(1, 1)]);
    }

    #[test]
    fn counts_are_of_the_latest_packets() {
        let mut paths = fresh();
        for _ in 0..100 {
            assert_eq!(closed(&mut paths, [(500, 0), (500, 0)], 1), []);
        }
        assert_eq!(closed(&mut paths, [(500, 0), (450, 50)], 1), [(1, 1)]);
        assert_eq!(closed(&mut fresh(), [(40, 0), (30, 3)], 1), []);
        let mut paths = fresh();
        closed(&mut paths, [(40, 0), (30, 3)], 1);
        assert_eq!(closed(&mut paths, [(40, 0), (30, 3)], 12), [], "eleven seconds later");
    }
}
