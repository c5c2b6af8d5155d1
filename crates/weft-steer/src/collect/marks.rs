//! The marks of a link: those that its port's queue counts, where the router's agent reports them, or an estimate from
//! sampled packets.
//!
//! A queue's counter has only marks made there. Sampled packets also show marks that they arrived with: packets that arrived
//! marked at the router are subtracted from marked packets that crossed the link.

use serde::{Deserialize, Serialize};
use weft_route::MIN_PACKET_BYTES;
use weft_wire::sflow::QueueMarks;

/// The source of a link's marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarksSource {
    /// The counter of the port's queue: exact.
    Queue,
    /// The congestion bits of sampled packets: an estimate.
    Samples,
}

/// Marked packets of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    pub(super) estimate: Estimate,
    /// The last count of the queue that was accepted.
    accepted: Option<Reading>,
    /// The last count rejected, which cannot follow the accepted one.
    rejected: Option<Reading>,
    /// Number of packets marked on this link since the start.
    total: u64,
    source: Option<MarksSource>,
}

/// The marked packets that samples since the last report represent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimate {
    /// Number of marked packets that crossed the link.
    pub(super) crossed: u64,
    /// Number of packets that arrived marked at the router that sends on it.
    pub(super) entered: u64,
    /// Excess of arrived over crossed packets, due to sampling; it is subtracted once, from the next report.
    excess: u64,
}

/// A count of the queue.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Bytes that the port had sent.
    bytes: u64,
    /// The queue's counter.
    marked: u32,
    /// The link's marks up to then.
    total: u64,
}

impl Marks {
    /// Adds the marks since the last report: those of the queue's counter, if it is reported and follows an earlier count,
    /// otherwise the estimate. Returns `false` if the counter cannot follow the last one, because it went back or has more
    /// marks than packets were sent. It is used again when the next count follows this one, as after a restart of the
    /// queue, or follows the last one accepted: one forged report changes nothing.
    pub(super) fn add(&mut self, bytes: u64, queue: Option<QueueMarks>) -> bool {
        let estimated = self.total + self.estimate.take();
        let Some(QueueMarks { marked }) = queue else {
            let (estimate, source) = (self.estimate, Some(MarksSource::Samples));
            *self = Self { estimate, total: estimated, source, ..Self::default() };
            return true;
        };
        let total_after = |before: Option<Reading>| before?.total_after(bytes, marked);
        let exact = total_after(self.accepted).or_else(|| total_after(self.rejected));
        self.source = Some(exact.map_or(MarksSource::Samples, |_| MarksSource::Queue));
        // A total that has grown by estimates while counts were rejected does not decrease.
        self.total = exact.map_or(estimated, |exact| exact.max(self.total));
        let reading = Some(Reading { bytes, marked, total: self.total });
        let is_believed = exact.is_some() || self.accepted.is_none();
        if is_believed {
            (self.accepted, self.rejected) = (reading, None);
        } else {
            self.rejected = reading;
        }
        is_believed
    }

    /// Returns the number of packets marked on this link since the start.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the source of the marks of the last report, if there was one.
    pub(super) const fn source(&self) -> Option<MarksSource> {
        self.source
    }
}

impl Estimate {
    /// Returns the estimated number of marks since the last call.
    fn take(&mut self) -> u64 {
        let Self { crossed, entered, excess } = *self;
        *self = Self { excess: entered.saturating_sub(crossed), ..Self::default() };
        crossed.saturating_sub(entered + excess)
    }
}

impl Reading {
    /// Returns the link's marks at a later count; `None` if that cannot follow this one.
    fn total_after(&self, bytes: u64, marked: u32) -> Option<u64> {
        let increase = marked.wrapping_sub(self.marked);
        let packets = bytes.checked_sub(self.bytes)? / MIN_PACKET_BYTES;
        // The counter wraps: an increase of more than half its range is a decrease (RFC 1982).
        let is_possible = increase <= u32::MAX / 2 && u64::from(increase) <= packets;
        is_possible.then_some(self.total + u64::from(increase))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of bytes sent between two reports: 10,000 packets of the minimum size.
    const SENT: u64 = 640_000;

    /// Returns for each of these counts of a queue, one per report, the marks since the report before and `true` if it is
    /// believed. Samples of each interval show 256 marked packets.
    fn added(counts: &[Option<u32>]) -> Vec<(u64, bool)> {
        let mut marks = Marks::default();
        let report = |(index, count): (usize, &Option<u32>)| {
            marks.estimate.crossed += 256;
            let before = marks.total();
            let queue = count.map(|marked| QueueMarks { marked });
            let is_believed = marks.add(SENT * index as u64, queue);
            (marks.total() - before, is_believed)
        };
        counts.iter().enumerate().map(report).collect()
    }

    #[test]
    fn a_queue_that_counts_its_marks_needs_no_samples() {
        let counts = [Some(7_000), Some(7_300), Some(7_300), Some(17_300)];
        // Before the first count the number of marks is unknown.
        assert_eq!(added(&counts), [(256, true), (300, true), (0, true), (10_000, true)]);
        assert_eq!(added(&[None, None]), [(256, true), (256, true)]);
    }

    #[test]
    fn a_counter_that_wraps_goes_on() {
        let counts = [Some(u32::MAX - 99), Some(200), Some(201)];
        assert_eq!(added(&counts), [(256, true), (300, true), (1, true)]);
    }

    #[test]
    fn a_queue_that_is_replaced_is_believed_when_its_count_goes_on() {
        let counts = [Some(5_000), Some(5_010), Some(3), Some(43)];
        assert_eq!(added(&counts), [(256, true), (10, true), (256, false), (40, true)]);
    }

    #[test]
    fn more_marks_than_packets_change_nothing() {
        // The last count includes the interval that was estimated at 256: 300 - 256 are added.
        let counts = [Some(0), Some(10_001), Some(300)];
        assert_eq!(added(&counts), [(256, true), (256, false), (44, true)]);
        // Fewer than the estimate are not subtracted, because the total never decreases.
        let counts = [Some(0), Some(10_001), Some(100), Some(110)];
        assert_eq!(added(&counts), [(256, true), (256, false), (0, true), (10, true)]);
    }

    #[test]
    fn a_queue_that_stops_counting_is_estimated_and_counted_again() {
        let counts = [Some(10), Some(20), None, Some(25), Some(30)];
        let marks: Vec<u64> = added(&counts).into_iter().map(|(marks, _)| marks).collect();
        assert_eq!(marks, [256, 10, 256, 256, 5]);
    }

    #[test]
    fn marks_that_arrived_are_subtracted_from_samples_only() {
        let estimate = Estimate { crossed: 512, entered: 1024, excess: 0 };
        let mut marks = Marks { estimate, ..Marks::default() };
        assert!(marks.add(0, None));
        assert_eq!((marks.total(), marks.source()), (0, Some(MarksSource::Samples)));
        // The excess of 512 is subtracted once.
        marks.estimate.crossed = 768;
        assert!(marks.add(SENT, Some(QueueMarks { marked: 9 })));
        assert_eq!(marks.total(), 256);
        marks.estimate = Estimate { crossed: 512, entered: 512, excess: 0 };
        assert!(marks.add(2 * SENT, Some(QueueMarks { marked: 49 })));
        assert_eq!((marks.total(), marks.source()), (296, Some(MarksSource::Queue)));
    }
}
