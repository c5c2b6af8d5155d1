//! Which paths lose so much more than the others that they are left: loss on one path means a bad path, loss on all
//! means congestion.
//!
//! A lossy path cannot be probed back: nine of ten probes are answered where a tenth is lost. It is used again after a
//! while, and what it loses then, over all connections, closes it for twice as long.

use weft_units::{Duration, Instant};

use super::PathId;
use super::peers::Record;

/// Packets lost at least before a share means anything.
const MIN_LOST: u32 = 4;

/// One packet in so many that is lost makes a path lossy: 2 %.
const ONE_IN: u32 = 50;

/// The share lost, as a multiple of that of the other paths together.
const WORSE: u32 = 4;

/// Packets of the other paths that show what is usual.
const MIN_OTHERS: u32 = 32;

/// Packets remembered: counts are halved when there are more.
const WINDOW: u32 = 1024;

/// Counts older than this are dropped.
const MAX_AGE: Duration = Duration::from_secs(10);

/// How long a path is left the first time; twice as long each time after, up to 16 times.
const FIRST_HOLD: Duration = Duration::from_secs(1);
const MAX_DOUBLINGS: u8 = 4;

/// A path that lost nothing to speak of for this long begins anew.
const FORGIVEN_AFTER: Duration = Duration::from_secs(60);

/// Packets of one path, acknowledged and lost, over all connections.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lossy {
    acked: u32,
    lost: u32,
    /// When anything was last counted.
    counted_at: Instant,
    /// While the path is closed, until when; afterwards, when it was opened. The epoch before the first time.
    until: Instant,
    closed: bool,
    /// Times it was closed in a row.
    closings: u8,
}

impl Lossy {
    pub(super) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Counts packets: acknowledged, and lost.
    pub(super) fn count(&mut self, (acked, lost): (u16, u32), now: Instant) {
        if (acked, lost) == (0, 0) || self.closed {
            return;
        }
        if now.since(self.counted_at) > MAX_AGE {
            (self.acked, self.lost) = (0, 0);
        }
        self.counted_at = now;
        self.acked += u32::from(acked);
        self.lost = self.lost.saturating_add(lost);
        while self.sent() > WINDOW {
            self.acked /= 2;
            self.lost /= 2;
        }
    }

    /// Closes the paths that lose much more than the others, at most half of all; returns how many. One whose
    /// latest packets were lost may be dead, which losses in a row tell.
    pub(super) fn evaluate(
        paths: &mut [Record],
        now: Instant,
        mut on_closed: impl FnMut(PathId, Duration),
    ) -> u16 {
        let most = paths.len() / 2;
        let mut already = paths.iter().filter(|record| record.lossy.closed).count();
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
            if already < most && lossy.is_worse_than(others) {
                let hold = lossy.next_hold(now);
                lossy.close(hold, now);
                on_closed(PathId(path), hold);
                (already, closed) = (already + 1, closed + 1);
            }
        }
        closed
    }

    /// Leaves the path for `hold`.
    pub(super) fn close(&mut self, hold: Duration, now: Instant) {
        self.closings = self.closings.saturating_add(1);
        (self.acked, self.lost) = (0, 0);
        (self.closed, self.until) = (true, now + hold);
    }

    /// Opens the path if its time has passed; returns whether it did.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let is_over = self.closed && now >= self.until;
        if is_over {
            self.closed = false;
        }
        is_over
    }

    fn next_hold(&mut self, now: Instant) -> Duration {
        if now.since(self.until) > FORGIVEN_AFTER {
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
            && self.lost * ONE_IN >= self.sent()
            && sent >= u64::from(MIN_OTHERS)
            && own_lost * sent >= u64::from(WORSE) * lost * own_sent
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn seconds(count: u64) -> Instant {
        Instant::from_nanos(count * 1_000_000_000)
    }

    /// Counts on each path, and which of them close, for how many seconds.
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
        // It was well for more than a minute.
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
