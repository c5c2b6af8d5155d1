//! The state of a link from its port's counters and samples: marked packets, and a check that the next counters can follow.

use weft_route::PortReport;
use weft_units::{BitRate, ByteCount, Duration, Instant};

/// The state of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) marks: Marks,
    /// The counters that were believed last: when, and bytes.
    believed: Option<(Instant, u64)>,
    /// Counters that cannot follow those.
    doubted: Option<(Instant, u64)>,
}

/// Marked packets of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    /// Those that crossed it since the last report.
    pub(super) crossed: u64,
    /// Those that arrived marked at the router that sends on it, since the last report.
    pub(super) entered: u64,
    /// More that came than left, by the luck of the draw; the next report's are held against it once.
    owed: u64,
    /// Marked here since the beginning.
    total: u64,
}

/// Reading a counter and receiving it are two moments; so much may lie between them.
const SLACK: Duration = Duration::from_millis(100);

impl Counted {
    /// Returns `true` if a port can have sent `bytes` since it began, by what it said before. Counters that went back, or
    /// that leapt beyond what the link carries, are believed when the next ones follow them: the router has restarted.
    /// One forged report changes nothing.
    pub(super) fn believes(&mut self, now: Instant, bytes: u64, rate: BitRate) -> bool {
        let follows = |before: Option<(Instant, u64)>| {
            before.is_some_and(|(at, counted)| {
                let span = now.since(at);
                let ByteCount(most) = rate.bytes_in(span + SLACK + span / 50);
                bytes.checked_sub(counted).is_some_and(|sent| sent <= most)
            })
        };
        let is_believed =
            self.believed.is_none() || follows(self.believed) || follows(self.doubted);
        if is_believed {
            (self.believed, self.doubted) = (Some((now, bytes)), None);
        } else {
            self.doubted = Some((now, bytes));
        }
        is_believed
    }

    /// Returns a report of the port's counters, with the marks that were seen since the last one.
    pub(super) fn report(
        &mut self,
        link: weft_route::LinkId,
        at: Instant,
        bytes: u64,
    ) -> PortReport {
        PortReport { link, at, bytes, marks: self.marks.settle() }
    }
}

impl Marks {
    /// Counts what was seen since the last report.
    fn settle(&mut self) -> u64 {
        let against = self.entered + self.owed;
        self.total += self.crossed.saturating_sub(against);
        self.owed = self.entered.saturating_sub(self.crossed);
        (self.crossed, self.entered) = (0, 0);
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of these counters, one each second, a link of 8 Mb/s believes: it carries 1 MB in each.
    fn believed(counters: &[u64]) -> Vec<bool> {
        let (mut known, rate) = (Counted::default(), BitRate::bps(8_000_000).unwrap());
        let at = |second| Instant::EPOCH + Duration::from_secs(second);
        let report =
            |(second, &bytes): (usize, &u64)| known.believes(at(second as u64), bytes, rate);
        counters.iter().enumerate().map(report).collect()
    }

    #[test]
    fn a_forged_leap_changes_nothing() {
        assert_eq!(
            believed(&[0, 900_000, 90_000_000, 2_000_000, 2_900_000]),
            [true, true, false, true, true]
        );
        assert_eq!(believed(&[9_000_000, 0, 9_100_000]), [true, false, true]);
    }

    #[test]
    fn a_router_that_restarted_is_believed_when_it_goes_on() {
        assert_eq!(believed(&[9_000_000, 0, 900_000, 1_800_000]), [true, false, true, true]);
    }
}
