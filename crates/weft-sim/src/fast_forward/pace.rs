//! The pace of units: when the latest ones were completed, and whether they take equal times.

use std::collections::VecDeque;

use super::{Criterion, Refusal};
use crate::time::{SimSpan, SimTime};

/// Number of consecutive units whose durations are compared, unless a pace says otherwise.
pub const INTERVALS: usize = 2;

/// Number of consecutive units that are compared where computation and communication wait for each other: their order
/// takes several units to settle, and units get longer or shorter meanwhile. The means of the earlier and of the later
/// half may then differ by a fifth of the threshold.
pub const SETTLING_INTERVALS: usize = 4;

/// The completion times of the latest units of one kind.
///
/// A unit consists of pieces, for instance one of every rank. It is completed when as many pieces were as a unit has,
/// whichever rank they belong to: in a periodic state this instant recurs with the period, even if ranks are at
/// different positions.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// Number of pieces of a unit.
    pieces_per_unit: u64,
    /// Number of consecutive units whose durations are compared.
    intervals: usize,
    /// Number of completed pieces of the current unit.
    pieces: u64,
    /// The completion times of the latest units, oldest first.
    ends: VecDeque<SimTime>,
}

impl Pace {
    /// Returns a pace without completed units, which compares [`INTERVALS`] of them.
    pub fn new(pieces_per_unit: u64) -> Self {
        Self::of_intervals(pieces_per_unit, INTERVALS)
    }

    /// Returns a pace without completed units, which compares this number of them.
    pub fn of_intervals(pieces_per_unit: u64, intervals: usize) -> Self {
        Self { pieces_per_unit, intervals, ..Self::default() }
    }

    /// Returns the number of units that are compared.
    pub const fn intervals(&self) -> usize {
        self.intervals
    }

    /// Returns the number of pieces of a unit.
    pub const fn pieces_per_unit(&self) -> u64 {
        self.pieces_per_unit
    }

    /// Forgets the completed units.
    pub fn reset(&mut self) {
        self.pieces = 0;
        self.ends.clear();
    }

    /// Returns `true` if no unit is completed.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Counts a completed piece; returns `true` if it completes a unit.
    pub fn count_piece(&mut self, now: SimTime) -> bool {
        self.pieces += 1;
        if self.pieces < self.pieces_per_unit {
            return false;
        }
        self.pieces = 0;
        self.end_unit(now);
        true
    }

    /// Counts the pieces of units that a skip of smaller units removed, evenly over its span, which ends now. Returns the
    /// number of units that they complete.
    pub fn count_skipped(&mut self, pieces: u64, span: SimSpan, now: SimTime) -> u64 {
        self.pieces += pieces;
        let mut units = 0;
        while self.pieces_per_unit > 0 && self.pieces >= self.pieces_per_unit {
            self.pieces -= self.pieces_per_unit;
            let after = u128::from(span.as_picos()) * u128::from(self.pieces) / u128::from(pieces);
            let after = u64::try_from(after).unwrap_or(u64::MAX);
            self.end_unit(SimTime::from_picos(now.as_picos().saturating_sub(after)));
            units += 1;
        }
        units
    }

    /// Notes the completion of a unit.
    fn end_unit(&mut self, at: SimTime) {
        if self.ends.len() > self.intervals {
            self.ends.pop_front();
        }
        // Hosts are simulated one after another, so the last piece processed may not be the latest.
        let last = self.ends.back().copied().unwrap_or(SimTime::EPOCH);
        self.ends.push_back(at.max(last));
    }

    /// Returns the mean duration of the latest units, and the difference between the longest and the shortest as a share
    /// of it.
    ///
    /// # Errors
    /// Too few units were completed, or their durations differ too much.
    #[expect(clippy::cast_precision_loss, reason = "a share of picoseconds")]
    pub fn period(&self, criterion: &Criterion) -> Result<(SimSpan, f64), Refusal> {
        let first = self.ends.front().filter(|_| self.ends.len() > self.intervals);
        let first = *first.ok_or(Refusal::TooFewUnits)?;
        if first < criterion.unchanged_since {
            return Err(Refusal::TooFewUnits);
        }
        let pairs = self.ends.iter().zip(self.ends.iter().skip(1));
        let spans: Vec<u64> = pairs.map(|(start, end)| end.since(*start).as_picos()).collect();
        let max = spans.iter().copied().fold(0, u64::max);
        let min = spans.iter().copied().fold(max, u64::min);
        let last = *self.ends.back().expect("more than the intervals");
        let mean = last.since(first).as_picos() / self.intervals as u64;
        if mean == 0 {
            return Err(Refusal::NotSteady);
        }
        let spread = (max - min) as f64 / mean as f64;
        let (earlier, later) = spans.split_at(spans.len() / 2);
        let change = later.iter().sum::<u64>().abs_diff(earlier.iter().sum()) as f64
            / (mean * earlier.len().max(1) as u64) as f64;
        let settles = self.intervals >= SETTLING_INTERVALS && change >= criterion.threshold / 5.0;
        if spread >= criterion.threshold || settles {
            return Err(Refusal::NotSteady);
        }
        Ok((SimSpan::from_picos(mean), spread))
    }

    /// Moves the completion times by `picos`, as a skip requires: by the skipped time if the skip removed units of this
    /// kind or smaller ones of other parts, by the rest if it removed parts of these units.
    pub fn shift(&mut self, picos: i64) {
        for end in &mut self.ends {
            *end = SimTime::from_picos(end.as_picos().saturating_add_signed(picos));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> SimTime {
        SimTime::from_picos(micros * 1_000_000)
    }

    fn criterion(threshold: f64) -> Criterion {
        Criterion { threshold, unchanged_since: SimTime::EPOCH }
    }

    #[test]
    fn a_unit_is_complete_when_all_its_pieces_are() {
        let mut pace = Pace::new(3);
        let ends: Vec<bool> = (1..=6).map(|time| pace.count_piece(at(time))).collect();
        assert_eq!(ends, [false, false, true, false, false, true]);
        assert_eq!(pace.period(&criterion(1.0)), Err(Refusal::TooFewUnits));
    }

    #[test]
    fn equal_durations_are_steady_and_unequal_ones_are_not() {
        let mut pace = Pace::new(1);
        for time in [100, 200, 304] {
            pace.count_piece(at(time));
        }
        let (period, spread) = pace.period(&criterion(0.05)).unwrap();
        assert_eq!(period, SimSpan::from_picos(102_000_000));
        assert!((spread - 4.0 / 102.0).abs() < 1e-9, "{spread}");
        assert_eq!(pace.period(&criterion(0.03)), Err(Refusal::NotSteady));
    }

    #[test]
    fn units_before_a_change_do_not_count() {
        let mut pace = Pace::new(1);
        for time in [100, 200, 300] {
            pace.count_piece(at(time));
        }
        let changed = Criterion { unchanged_since: at(150), ..criterion(0.05) };
        assert_eq!(pace.period(&changed), Err(Refusal::TooFewUnits));
        pace.count_piece(at(400));
        assert!(pace.period(&changed).is_ok());
    }

    #[test]
    fn units_that_still_change_are_not_steady() {
        let ends = |spans: &[u64]| {
            let mut pace = Pace::of_intervals(1, SETTLING_INTERVALS);
            pace.count_piece(at(0));
            spans.iter().fold(0, |time, span| {
                pace.count_piece(at(time + span));
                time + span
            });
            pace.period(&criterion(0.05)).map(|(period, _)| period.as_picos() / 1_000_000)
        };
        assert_eq!(ends(&[1_000, 1_004, 1_002]), Err(Refusal::TooFewUnits));
        assert_eq!(ends(&[1_000, 1_004, 1_016, 1_012]), Err(Refusal::NotSteady), "1.2 % longer");
        assert_eq!(ends(&[1_000, 1_016, 1_004, 1_012]), Ok(1_008));
    }

    #[test]
    fn pieces_that_a_skip_removed_count_towards_a_larger_unit() {
        let mut pace = Pace::new(4);
        for time in 1..=11 {
            pace.count_piece(at(100 * time));
        }
        // The pieces at 1,200 to 1,700 are skipped: the third unit ends at 1,200 and the fourth at 1,600.
        let span = SimSpan::from_picos(600_000_000);
        assert_eq!(pace.count_skipped(6, span, at(1_700)), 2);
        let (period, spread) = pace.period(&criterion(0.05)).unwrap();
        assert_eq!((period, spread), (SimSpan::from_picos(400_000_000), 0.0));
        pace.count_piece(at(1_800));
        pace.count_piece(at(1_900));
        assert!(pace.count_piece(at(2_000)), "one piece of the next unit was skipped");
    }

    #[test]
    fn a_shift_keeps_the_period() {
        let mut pace = Pace::new(1);
        for time in [100, 200] {
            pace.count_piece(at(time));
        }
        pace.shift(1_000_000_000);
        pace.count_piece(at(1_300));
        assert_eq!(pace.period(&criterion(0.05)).unwrap().0, SimSpan::from_picos(100_000_000));
    }
}
