//! The paces of a lane: how fast the ranks of a stage, or of all stages, pass its operations.

use std::collections::VecDeque;

use super::op::{LANES, Op};
use super::program::Plan;
use super::representatives::Representatives;
use crate::fast_forward::{Advance, Criterion, INTERVALS, Pace, Refusal, SETTLING_INTERVALS};
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

impl Tally {
    /// Multiplies all times.
    pub(super) fn multiply(&mut self, by: u64) {
        let times = self.exchanging.iter_mut().chain(std::iter::once(&mut self.computing));
        times.for_each(|time| *time = SimSpan::from_picos(time.as_picos().saturating_mul(by)));
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

impl Level {
    /// Notes the tally at the completion of a unit.
    fn push_tally(&mut self, tally: Tally) {
        if self.tallies.len() > self.pace.intervals() {
            self.tallies.pop_front();
        }
        self.tallies.push_back(tally);
    }
}

/// A lane of one stage, or of all.
#[derive(Debug)]
pub(super) struct Track {
    /// `true` if every exchange of the lane is a long ring.
    has_long_rings: bool,
    /// By period, the longest first.
    levels: Vec<Level>,
    /// Number of receives of a step of all ranks.
    receives: u64,
    /// The paces of steps in an exchange, the shortest units first.
    steps: Vec<Pace>,
    /// The exchange and phase that [`Self::steps`] is of.
    steps_of: Option<(usize, usize)>,
    /// See [`Cycle::owed`](crate::fast_forward::Cycle::owed).
    pub owed: i64,
    pub tally: Tally,
}

impl Track {
    /// Returns a track whose units are complete after these numbers of operations of all its ranks, of which `intervals`
    /// are compared, and whose steps are after `receives` receives. If all its exchanges are long rings, the steps tell
    /// whether a ring is steady, and one is measured.
    fn new(operations: &[u64], receives: u64, has_long_rings: bool, intervals: usize) -> Self {
        let intervals = if has_long_rings { 1 } else { intervals };
        let pace = |&pieces: &u64| Pace::of_intervals(pieces, intervals);
        let level = |pace| Level { pace, run: 0, tallies: VecDeque::new() };
        Self {
            has_long_rings,
            levels: operations.iter().map(pace).map(level).collect(),
            receives,
            steps: Vec::new(),
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
            level.push_tally(tally);
        }
        is_complete
    }

    /// Counts the receive of a step of an exchange's phase, whose steps are measured by units of these numbers, the
    /// shortest first; returns `true` if a unit is complete.
    pub(super) fn count_receive(
        &mut self,
        of: (usize, usize),
        units: impl Iterator<Item = u64>,
        now: SimTime,
    ) -> bool {
        if self.steps_of != Some(of) {
            self.steps_of = Some(of);
            let pace = |steps| Pace::of_intervals(self.receives * steps, SETTLING_INTERVALS);
            self.steps = units.map(pace).collect();
        }
        let count = |any, pace: &mut Pace| pace.count_piece(now) || any;
        self.steps.iter_mut().fold(false, count)
    }

    /// Returns the duration of a step and the spread of the shortest units of steps that are steady.
    fn steady_steps(&self, criterion: &Criterion) -> Result<(SimSpan, f64), Refusal> {
        let mut refusal = None;
        for pace in &self.steps {
            match pace.period(criterion) {
                Ok((period, spread)) => {
                    let steps = pace.pieces_per_unit() / self.receives;
                    return Ok((SimSpan::from_picos(period.as_picos() / steps), spread));
                }
                Err(reason) => refusal = refusal.or(Some(reason)),
            }
        }
        Err(refusal.unwrap_or(Refusal::TooFewUnits))
    }

    /// Returns the period and the spread of a level's units, if they are those of `run`.
    pub(super) fn period_of_operations(
        &self,
        level: usize,
        run: u32,
        criterion: &Criterion,
    ) -> Result<(SimSpan, f64), Refusal> {
        let level = &self.levels[level];
        if level.run != run {
            return Err(Refusal::TooFewUnits);
        }
        let (period, spread) = level.pace.period(criterion)?;
        let of_steps = if self.has_long_rings { self.steady_steps(criterion)?.1 } else { 0.0 };
        Ok((period, spread.max(of_steps)))
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
        self.steady_steps(criterion)
    }

    /// Advances by `span`, in which nothing of the lane passed.
    pub(super) fn stay(&mut self, span: SimSpan) {
        let whole = span.as_picos().cast_signed();
        self.levels.iter_mut().for_each(|level| level.pace.shift(whole));
        self.steps.iter_mut().for_each(|pace| pace.shift(whole));
    }

    /// Advances by `span`, which ends now and in which units of a level passed and left a rest. Units of longer periods
    /// then seem to have begun later only by the rest, and have as many more pieces.
    pub(super) fn advance(&mut self, part: &Advance, span: SimSpan, now: SimTime) {
        let (level, rest) = (part.cycle.level, part.rest(span));
        let (longer, others) = self.levels.split_at_mut(level);
        let pieces = others.first().map_or(0, |level| part.units * level.pace.pieces_per_unit());
        for other in longer {
            other.pace.shift(rest);
            for _ in 0..other.pace.count_skipped(pieces, part.span(), now) {
                other.push_tally(self.tally);
            }
        }
        let whole = span.as_picos().cast_signed();
        others.iter_mut().for_each(|level| level.pace.shift(whole));
        self.steps.iter_mut().for_each(|pace| pace.shift(whole));
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

/// The state of fast-forward of a job.
#[derive(Debug)]
pub(super) struct Skipping {
    /// The first lane of all stages, then the other lanes of each stage.
    pub tracks: Vec<Track>,
    pub iterations: Pace,
    /// Number of iterations that were skipped.
    pub skipped_iterations: u64,
    /// The bytes of the latest complete iteration.
    pub iteration_bytes: u64,
}

/// The simulated ranks that advance together in a lane: all of them in the first, whose exchanges connect them; in the
/// others those that have the same part of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Members {
    pub lane: usize,
    pub first: u32,
    /// Number of consecutive ranks, of each tensor-parallel group.
    width: u32,
    /// The distance between the groups.
    tensor: u32,
    count: u32,
}

impl Members {
    /// Returns the members of a track.
    pub(super) fn of(track: usize, of: Representatives) -> Self {
        let (grid, width) = (of.grid(), of.width());
        let groups = groups(of);
        let Some(index) = track.checked_sub(1) else {
            return Self { lane: 0, first: 0, width, tensor: grid.tensor, count: of.count() };
        };
        let lane = 1 + index / groups;
        let group = u32::try_from(index % groups).expect("fewer groups than ranks");
        let first = group / width * grid.stage_size() + group % width;
        Self { lane, first, width: 1, tensor: grid.tensor, count: grid.data }
    }

    /// Returns the members.
    pub(super) fn ranks(self) -> impl Iterator<Item = u32> {
        let Self { first, width, tensor, count, .. } = self;
        (0..count).map(move |index| first + index / width * tensor + index % width)
    }
}

/// Returns the number of groups of simulated ranks that have the same part of the model.
const fn groups(of: Representatives) -> usize {
    (of.width() * of.grid().pipeline) as usize
}

/// Returns the index of the track of a rank's lane.
pub(super) const fn track_of(rank: u32, lane: usize, of: Representatives) -> usize {
    match lane {
        0 => 0,
        lane => {
            let grid = of.grid();
            let group = grid.stage(rank) * of.width() + rank % grid.tensor;
            1 + (lane - 1) * groups(of) + group as usize
        }
    }
}

impl Skipping {
    /// Returns the state before the first iteration; `is_local` if the first lane uses no network.
    pub(super) fn new(plan: &Plan, of: Representatives, slices: u32, is_local: bool) -> Self {
        let grid = plan.grid;
        let tracks = (0..=(LANES - 1) * groups(of)).map(|track| {
            let members = Members::of(track, of);
            let levels = plan.repeats[grid.stage(members.first) as usize][members.lane].len();
            let mut operations = vec![0; levels];
            for rank in members.ranks() {
                let levels = &plan.repeats[grid.stage(rank) as usize][members.lane];
                for (count, level) in operations.iter_mut().zip(levels) {
                    *count += level.period as u64;
                }
            }
            let programs = plan.programs.iter().flat_map(|lanes| &lanes[members.lane]);
            let has_long_rings = members.lane > 0
                && programs.clone().all(|op| match *op {
                    Op::Exchange(exchange) => plan.exchanges[exchange].is_long_ring(),
                    _ => true,
                });
            let receives = u64::from(members.count) * u64::from(slices);
            let settles = members.lane == 0 && !is_local;
            let intervals = if settles { SETTLING_INTERVALS } else { INTERVALS };
            Track::new(&operations, receives, has_long_rings, intervals)
        });
        Self {
            tracks: tracks.collect(),
            iterations: Pace::new(1),
            skipped_iterations: 0,
            iteration_bytes: 0,
        }
    }

    /// Begins an iteration.
    pub(super) fn begin(&mut self, now: SimTime) {
        self.tracks.iter_mut().for_each(Track::begin);
        if self.iterations.is_empty() {
            self.iterations.count_piece(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::grid::Grid;
    use super::*;

    #[test]
    fn rounds_that_vary_have_a_steady_pace_by_fours() {
        // Rounds of 13.4 to 15.6 us without a trend, each of two receives.
        let rounds = [13_400, 15_600, 14_100, 14_900, 15_500, 13_600, 14_800, 14_100];
        let period = |units: &[u64]| {
            let mut track = Track::new(&[], 2, true, 1);
            let mut now = SimTime::EPOCH;
            for nanos in rounds.into_iter().cycle().take(5 * 4) {
                now += SimSpan::from_picos(nanos * 1_000);
                for _ in 0..2 {
                    track.count_receive((7, 0), units.iter().copied(), now);
                }
            }
            let criterion = Criterion { threshold: 0.05, unchanged_since: SimTime::EPOCH };
            track.period_of_steps((7, 0), &criterion).map(|(period, _)| period.as_picos() / 1_000)
        };
        assert_eq!(period(&[1]), Err(Refusal::NotSteady));
        assert_eq!(period(&[4]), Ok(14_500));
        assert_eq!(period(&[1, 2, 4]), Ok(14_500), "the shortest unit that is steady");
    }

    #[test]
    fn each_rank_is_a_member_of_the_track_of_its_lane() {
        let all = Representatives::all(Grid { tensor: 2, pipeline: 3, data: 4, expert: 2 });
        for lane in 0..LANES {
            let mut members = vec![0; 24];
            for rank in 0..24 {
                let track = track_of(rank, lane, all);
                let of = Members::of(track, all);
                assert_eq!(of.lane, lane);
                assert!(of.ranks().any(|member| member == rank), "{rank} in {of:?}");
                members[track] += 1;
            }
            let per_track = if lane == 0 { 24 } else { 4 };
            assert!(members.iter().all(|&count| count == 0 || count == per_track), "{members:?}");
        }
        assert_eq!((LANES - 1) * groups(all), 12);
    }
}
