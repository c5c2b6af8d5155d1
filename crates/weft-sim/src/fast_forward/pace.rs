//! The pace of units: when the latest ones were completed, and whether they take equal times.

use std::collections::VecDeque;

use super::{Criterion, Refusal};
use crate::time::{SimSpan, SimTime};

/// Number of consecutive units whose durations are compared, unless a pace says otherwise.
pub const INTERVALS: usize = 2;

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
        if self.ends.len() > self.intervals {
            self.ends.pop_front();
        }
        // Hosts are simulated one after another, so the last piece processed may not be the latest.
        let last = self.ends.back().copied().unwrap_or(SimTime::EPOCH);
        self.ends.push_back(now.max(last));
        true
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
        let spans = pairs.map(|(start, end)| end.since(*start).as_picos());
        let (min, max) =
            spans.fold((u64::MAX, 0), |(min, max), span| (min.min(span), max.max(span)));
        let last = *self.ends.back().expect("more than the intervals");
        let mean = last.since(first).as_picos() / self.intervals as u64;
        if mean == 0 {
            return Err(Refusal::NotSteady);
        }
        let spread = (max - min) as f64 / mean as f64;
        if spread >= criterion.threshold {
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
