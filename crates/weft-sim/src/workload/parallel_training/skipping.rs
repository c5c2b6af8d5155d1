//! Fast-forward of a training job: the parts that repeat, and how a job advances by their units.
//!
//! A skip moves all ranks to a later place of their programs that looks like the present one: by periods of a lane's
//! operations, or by steps around a ring. Messages in flight name lanes, groups and senders, not operations or steps, so
//! they stay valid, and so do timers.

use super::exchange::{Peers, Phase};
use super::job::Job;
use super::op::{LANES, Op};
use super::rank::Lane;
use super::track::{Members, track_of};
use crate::fast_forward::{Advance, Criterion, Cycle, Grain, Refusal};
use crate::time::{SimSpan, SimTime};
use crate::world::Session;

impl Job {
    /// Counts an operation that a rank has passed.
    pub(super) fn count_operation(
        &mut self,
        rank: u32,
        lane: usize,
        op: usize,
        session: &mut Session<'_>,
    ) {
        let track = &mut self.skipping.tracks[track_of(rank, lane, self.representatives)];
        let stage = self.plan.grid.stage(rank) as usize;
        for (level, repeats) in self.plan.repeats[stage][lane].iter().enumerate() {
            if track.count_operation(level, repeats.run(op), session.now()) {
                session.consider_skip();
            }
        }
    }

    /// Counts a message that a rank received in an exchange's phase.
    pub(super) fn count_receive(
        &mut self,
        rank: u32,
        lane: usize,
        phase: (usize, usize),
        session: &mut Session<'_>,
    ) {
        let track = &mut self.skipping.tracks[track_of(rank, lane, self.representatives)];
        let units = self.plan.exchanges[phase.0].phases[phase.1].units_measured();
        if track.count_receive(phase, units, session.now()) {
            session.consider_skip();
        }
    }

    /// Returns the stage and the state of each member's lane.
    fn lanes(&self, members: Members) -> impl Iterator<Item = (usize, &Lane)> {
        let stage = |rank| self.plan.grid.stage(rank) as usize;
        members
            .ranks()
            .map(move |rank| (stage(rank), &self.ranks[rank as usize].lanes[members.lane]))
    }

    /// Returns the cycles of all lanes.
    pub(super) fn lane_cycles(
        &self,
        grain: Grain,
        criterion: &Criterion,
    ) -> Result<Vec<Option<Cycle>>, Refusal> {
        // Computation and gathering wait for each other, so that neither may advance by itself.
        let gathers = self.plan.programs.iter().any(|lanes| !lanes[LANES - 1].is_empty());
        if gathers {
            return Err(Refusal::NotRepeating);
        }
        let tracks = self.skipping.tracks.len();
        let cycle = |track| match &self.timeline {
            Some(_) if track == 0 => Ok(None),
            _ => self.cycle(track, grain, criterion),
        };
        (0..tracks).map(cycle).collect()
    }

    /// Returns the cycle of a track; `None` if all its ranks wait for another lane, or are at their end.
    fn cycle(
        &self,
        track: usize,
        grain: Grain,
        criterion: &Criterion,
    ) -> Result<Option<Cycle>, Refusal> {
        let members = Members::of(track, self.representatives);
        let state = &self.skipping.tracks[track];
        // A record whose time is known does not hold a lane up for longer than a unit.
        let waits = self.wait_of(members).filter(|wait| wait.is_none() || self.timeline.is_none());
        if waits.is_some() {
            return Ok(None);
        }
        // The first lane has exchanges of several kinds a layer, and none is long: it does not advance by steps.
        let step_level = state.step_level();
        let count = if members.lane == 0 { step_level } else { step_level + 1 };
        let levels = if grain == Grain::Step { count.saturating_sub(1)..count } else { 0..count };
        let mut refusal = Refusal::NotRepeating;
        for level in levels {
            let found = if level == step_level {
                self.steps_left(members)
                    .and_then(|(of, units)| Ok((state.period_of_steps(of, criterion)?, units)))
            } else {
                self.periods_left(members, level).and_then(|(run, units)| {
                    let (period, spread) = state.period_of_operations(level, run, criterion)?;
                    let period = self.pace_of_records(members, period).unwrap_or(period);
                    let units = units.min(self.units_before_records(members, period));
                    Ok(((period, spread), units))
                })
            };
            match found {
                Ok((_, 0)) => refusal = Refusal::NothingLeft,
                Ok(((period, spread), units)) => {
                    return Ok(Some(Cycle { period, spread, units, owed: state.owed, level }));
                }
                Err(reason) => refusal = reason,
            }
        }
        Err(refusal)
    }

    /// Returns the record for which all members wait, or `Some(None)` if all are at their end; `None` if some are not
    /// waiting.
    fn wait_of(&self, members: Members) -> Option<Option<usize>> {
        let mut waits = self.lanes(members).map(|(stage, lane)| {
            match self.plan.programs[stage][members.lane].get(lane.next) {
                None => Some(None),
                Some(&Op::Await(record)) => Some(Some(record)),
                Some(_) => None,
            }
        });
        let first = waits.next()??;
        waits.all(|wait| wait == Some(first)).then_some(first)
    }

    /// Returns the run in which all members are, and the number of its periods by which they can advance.
    fn periods_left(&self, members: Members, level: usize) -> Result<(u32, u64), Refusal> {
        let mut places = vec![(usize::MAX, 0); self.plan.programs.len()];
        for (stage, lane) in self.lanes(members) {
            let (first, last) = &mut places[stage];
            (*first, *last) = ((*first).min(lane.next), (*last).max(lane.next));
        }
        let (mut run, mut units) = (0, usize::MAX);
        let of_stages = places.iter().enumerate().filter(|(_, (first, _))| *first < usize::MAX);
        for (stage, &(first, last)) in of_stages {
            let repeats = self.plan.repeats[stage][members.lane].get(level);
            let repeats = repeats.ok_or(Refusal::NotRepeating)?;
            run = repeats.run(first);
            if run == 0 || run != repeats.run(last) {
                return Err(Refusal::NotRepeating);
            }
            units = units.min(repeats.periods_left(first, last));
            if members.lane == 0 {
                units = units.min(self.before_record(stage, last) / repeats.period);
            }
        }
        Ok((run, units as u64))
    }

    /// Returns the number of operations by which ranks of a stage at `last` in the first lane can advance without setting
    /// a record that ranks wait for in another lane.
    fn before_record(&self, stage: usize, last: usize) -> usize {
        let program = &self.plan.programs[stage][0];
        let others =
            (1..self.skipping.tracks.len()).map(|track| Members::of(track, self.representatives));
        let of_stage =
            others.filter(|members| self.plan.grid.stage(members.first) as usize == stage);
        let records = of_stage.filter_map(|members| self.wait_of(members).flatten());
        let places = records.filter_map(|record| {
            let set = program.iter().position(|&op| op == Op::Record(record))?;
            set.checked_sub(last)
        });
        places.min().unwrap_or(usize::MAX)
    }

    /// Returns the exchange and the phase in which all members are, and the number of steps by which they can advance.
    fn steps_left(&self, members: Members) -> Result<((usize, usize), u64), Refusal> {
        let mut of = None;
        let (mut first, mut last) = (usize::MAX, 0);
        for (stage, lane) in self.lanes(members) {
            let Some(&Op::Exchange(exchange)) =
                self.plan.programs[stage][members.lane].get(lane.next)
            else {
                return Err(Refusal::NotRepeating);
            };
            if lane.since.is_none() {
                return Err(Refusal::NotRepeating);
            }
            for cursor in &lane.slices {
                if *of.get_or_insert((exchange, cursor.phase)) != (exchange, cursor.phase) {
                    return Err(Refusal::NotRepeating);
                }
                (first, last) = (first.min(cursor.step), last.max(cursor.step));
            }
        }
        let (exchange, phase) = of.ok_or(Refusal::NotRepeating)?;
        let rounds = self.plan.exchanges[exchange].phases.get(phase).and_then(Phase::rounds);
        let rounds = rounds.filter(|rounds| first >= rounds.start);
        let end = rounds.ok_or(Refusal::NotRepeating)?.end;
        // A round is a send and a receive. The last one takes place, to drain.
        Ok(((exchange, phase), (end.saturating_sub(last + 2) / 2) as u64))
    }

    /// Advances the lanes; returns the bytes that are not sent.
    pub(super) fn skip_in_lanes(
        &mut self,
        parts: &[Option<Advance>],
        span: SimSpan,
        now: SimTime,
    ) -> u64 {
        let mut bytes = 0;
        for (track, part) in parts.iter().enumerate() {
            let state = &mut self.skipping.tracks[track];
            let Some(part) = part else {
                state.stay(span);
                continue;
            };
            let (level, units) = (part.cycle.level, part.units);
            state.extrapolate(level, units);
            state.advance(part, span, now);
            bytes += if level == state.step_level() {
                self.skip_steps(track, units)
            } else {
                self.skip_operations(track, level, units, span)
            };
        }
        // A first lane that was executed at the start has sent its messages at their times.
        if self.timeline.is_none() {
            self.ranks.iter_mut().for_each(|rank| rank.local_free += span);
        }
        self.bytes += bytes;
        bytes
    }

    /// Advances by whole iterations; returns the bytes that are not sent.
    pub(super) fn skip_iterations(&mut self, units: u64, span: SimSpan) -> u64 {
        self.skipping.skipped_iterations += units;
        let picos = span.as_picos().cast_signed();
        self.skipping.iterations.shift(picos);
        self.skipping.tracks.iter_mut().for_each(|track| track.stay(span));
        self.timeline.iter_mut().for_each(|timeline| timeline.shift(span));
        for rank in &mut self.ranks {
            rank.local_free += span;
            for since in rank.lanes.iter_mut().filter_map(|lane| lane.since.as_mut()) {
                *since += span;
            }
        }
        units * self.skipping.iteration_bytes
    }

    /// Advances all slices of a track by steps of a ring; returns the bytes that are not sent.
    fn skip_steps(&mut self, track: usize, units: u64) -> u64 {
        let members = Members::of(track, self.representatives);
        let Ok(((exchange, phase), _)) = self.steps_left(members) else { return 0 };
        let steps = 2 * usize::try_from(units).expect("fewer than a schedule's steps");
        for rank in members.ranks() {
            let lane = &mut self.ranks[rank as usize].lanes[members.lane];
            lane.slices.iter_mut().for_each(|cursor| cursor.step += steps);
        }
        let phase = &self.plan.exchanges[exchange].phases[phase];
        let all = self.bytes_of_phase(members, phase);
        phase.rounds().map_or(0, |rounds| all * units / (rounds.end as u64 / 2).max(1))
    }

    /// Advances all ranks of a track by periods of operations; returns the bytes that are not sent.
    fn skip_operations(&mut self, track: usize, level: usize, units: u64, span: SimSpan) -> u64 {
        let grid = self.plan.grid;
        let members = Members::of(track, self.representatives);
        let lane = members.lane;
        let periods = usize::try_from(units).expect("fewer than a program's");
        let mut bytes = 0;
        for number in members.ranks() {
            let stage = grid.stage(number) as usize;
            let period = self.plan.repeats[stage][lane][level].period;
            let rank = &mut self.ranks[number as usize];
            let state = &mut rank.lanes[lane];
            let passed = state.next..state.next + periods * period;
            for op in &self.plan.programs[stage][lane][passed.clone()] {
                if let Op::Record(record) = *op {
                    rank.records[record] = true;
                }
            }
            state.next = passed.end;
            if let Some(since) = &mut state.since {
                *since += span;
            }
            let of_period = &self.plan.programs[stage][lane][passed.start..passed.start + period];
            let exchanges = of_period.iter().filter_map(|op| match op {
                Op::Exchange(exchange) => Some(*exchange),
                _ => None,
            });
            let sent = exchanges.map(|exchange| self.bytes_of_exchange(number, exchange));
            bytes += units * sent.sum::<u64>();
        }
        bytes
    }

    /// Returns the bytes that a rank sends to other servers in an exchange.
    fn bytes_of_exchange(&self, rank: u32, exchange: usize) -> u64 {
        let phases = self.plan.exchanges[exchange].phases.iter();
        phases.map(|phase| self.bytes_of(rank, phase)).sum()
    }

    /// Returns the bytes that the members send to other servers in a phase.
    fn bytes_of_phase(&self, members: Members, phase: &Phase) -> u64 {
        members.ranks().map(|rank| self.bytes_of(rank, phase)).sum()
    }

    /// Returns the bytes that a rank sends to other servers in a phase.
    fn bytes_of(&self, rank: u32, phase: &Phase) -> u64 {
        let server = self.ranks[rank as usize].server;
        let leaves = |to: u32| self.ranks[to as usize].server != server;
        let sent = match &phase.with {
            Peers::Group(groups, moves) => {
                let (group, place) = self.plan.groups[*groups].of(rank);
                let others = moves.destinations(place).iter().filter(|(to, _)| leaves(group[*to]));
                let sends: u64 = others.map(|(_, messages)| messages).sum();
                sends * u64::from(self.message(phase.bytes, group.len()))
            }
            Peers::Send { forward } => {
                let (to, _) = self.neighbour(rank, *forward);
                u64::from(leaves(to)) * u64::from(self.message(phase.bytes, 1))
            }
            Peers::Receive { .. } => 0,
        };
        u64::from(self.config.slices) * sent
    }
}
