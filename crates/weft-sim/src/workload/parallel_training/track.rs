//! The paces of a lane: how fast the ranks of a stage, or of all stages, pass its operations.

use std::collections::VecDeque;

use crate::fast_forward::{Criterion, INTERVALS, Pace, Refusal};
use crate::time::{SimSpan, SimTime};

/// The time that ranks spent in a lane, summed over them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// On exchanges, by parallelism.
    pub exchanging: [SimSpan; 4],
    pub computing: SimSpan,
}

impl Tally {
    /// Applies `combine` to each pair of times.
    pub(super) fn with(self, other: Self, combine: impl Fn(SimSpan, SimSpan) -> SimSpan) -> Self {
        let mut exchanging = self.exchanging;
        for (time, other) in exchanging.iter_mut().zip(other.exchanging) {
            *time = combine(*time, other);
        }
        Self { exchanging, computing: combine(self.computing, other.computing) }
    }
}

/// Operations of a lane that repeat with one period.
#[derive(Debug)]
struct Level {
    pace: Pace,
    /// The run of the program that the pace is of.
    run: u32,
    /// The tally at the latest completions of units, oldest first.
    tallies: VecDeque<Tally>,
}

/// A lane of one stage, or of all.
#[derive(Debug)]
pub(super) struct Track {
    /// By period, the longest first.
    levels: Vec<Level>,
    /// The pace of steps in an exchange.
    steps: Pace,
    /// The exchange and phase that [`Self::steps`] is of.
    steps_of: Option<(usize, usize)>,
    /// See [`Cycle::owed`](crate::fast_forward::Cycle::owed).
    pub owed: i64,
    pub tally: Tally,
}

impl Track {
    /// Returns a track whose units are complete after these numbers of operations of all its ranks, and whose steps are
    /// after so many receives.
    pub(super) fn new(operations: &[u64], receives: u64) -> Self {
        let level =
            |&pieces: &u64| Level { pace: Pace::new(pieces), run: 0, tallies: VecDeque::new() };
        Self {
            levels: operations.iter().map(level).collect(),
            steps: Pace::new(receives),
            steps_of: None,
            owed: 0,
            tally: Tally::default(),
        }
    }

    /// Begins an iteration. The pace of steps stays: it is known from the iteration before.
    pub(super) fn begin(&mut self) {
        for level in &mut self.levels {
            level.pace.reset();
            level.run = 0;
            level.tallies.clear();
        }
        (self.owed, self.tally) = (0, Tally::default());
    }

    /// Returns the level whose units are steps.
    pub(super) fn step_level(&self) -> usize {
        self.levels.len()
    }

    /// Counts an operation that is in a run of the level's period; returns `true` if a unit is complete.
    pub(super) fn count_operation(&mut self, level: usize, run: u32, now: SimTime) -> bool {
        let tally = self.tally;
        // A stage with few micro-batches has no pair of passes that others have.
        let Some(level) = self.levels.get_mut(level).filter(|level| run > 0 && run >= level.run)
        else {
            return false;
        };
        if run > level.run {
            level.pace.reset();
            level.tallies.clear();
            level.run = run;
        }
        let is_complete = level.pace.count_piece(now);
        if is_complete {
            if level.tallies.len() > INTERVALS {
                level.tallies.pop_front();
            }
            level.tallies.push_back(tally);
        }
        is_complete
    }

    /// Counts the receive of a step of an exchange's phase; returns `true` if a step is complete.
    pub(super) fn count_receive(&mut self, of: (usize, usize), now: SimTime) -> bool {
        if self.steps_of != Some(of) {
            self.steps_of = Some(of);
            self.steps.reset();
        }
        self.steps.count_piece(now)
    }

    /// Returns the period and the spread of a level's units, if they are those of `run`.
    pub(super) fn period_of_operations(
        &self,
        level: usize,
        run: u32,
        criterion: &Criterion,
    ) -> Result<(SimSpan, f64), Refusal> {
        let level = &self.levels[level];
        if level.run != run { Err(Refusal::TooFewUnits) } else { level.pace.period(criterion) }
    }

    /// Returns the period and the spread of the steps of an exchange's phase.
    pub(super) fn period_of_steps(
        &self,
        of: (usize, usize),
        criterion: &Criterion,
    ) -> Result<(SimSpan, f64), Refusal> {
        if self.steps_of != Some(of) {
            return Err(Refusal::TooFewUnits);
        }
        self.steps.period(criterion)
    }

    /// Advances by `span`, in which a level's units passed and left a rest. Units of longer periods then seem to have
    /// begun later only by the rest.
    pub(super) fn advance(&mut self, level: usize, span: SimSpan, rest: i64) {
        let whole = span.as_picos().cast_signed();
        for (number, other) in self.levels.iter_mut().enumerate() {
            other.pace.shift(if number < level { rest } else { whole });
        }
        self.steps.shift(whole);
        self.owed = self.owed.saturating_add(rest);
    }

    /// Adds the time that ranks spend in this number of units of a level.
    pub(super) fn extrapolate(&mut self, level: usize, units: u64) {
        let Some(level) = self.levels.get_mut(level) else { return };
        let ends = (level.tallies.front().copied(), level.tallies.back().copied());
        let (Some(first), Some(last)) = ends else { return };
        let intervals = (level.tallies.len() as u64 - 1).max(1);
        let more = last.with(first, |last, first| {
            let picos = u128::from(last.as_picos().saturating_sub(first.as_picos()));
            let picos = picos * u128::from(units) / u128::from(intervals);
            SimSpan::from_picos(u64::try_from(picos).unwrap_or(u64::MAX))
        });
        let add = |one: SimSpan, other| one + other;
        self.tally = self.tally.with(more, add);
        for tally in &mut level.tallies {
            *tally = tally.with(more, add);
        }
    }
}
