//! The program of the ranks of a stage: computation, collectives and messages, in three lanes that wait for each other
//! where data depend on each other.
//!
//! The first lane computes, in the order of one forward, one backward (1F1B; Narayanan et al. 2021, section 2.2), and
//! performs the exchanges that computation waits for: tensor-parallel all-reduces, two in each direction of a layer,
//! tokens to experts and back, messages from other stages. The second reduces gradients, a layer at a time, as soon as
//! the last micro-batch's backward pass is through it, or all of them after it. The third gathers parameters where
//! they are sharded, a layer ahead of the computation.

use super::exchange::{Exchange, Exchanges, Planner};
use super::grid::{Grid, Groups};
use super::model::{Load, Sharding};
use super::op::{LANES, Op};
use super::repeats::Repeats;
use crate::time::SimSpan;
use crate::workload::WorkloadError;

/// The work of all ranks of a job in an iteration.
#[derive(Debug)]
pub(super) struct Plan {
    pub grid: Grid,
    pub groups: Vec<Groups>,
    pub exchanges: Vec<Exchange>,
    /// The programs by stage and lane.
    pub programs: Vec<[Vec<Op>; LANES]>,
    /// The repetitions in each lane of [`Self::programs`], the longest periods first.
    pub repeats: Vec<[Vec<Repeats>; LANES]>,
    /// Number of records of a rank.
    pub records: usize,
    /// The time of an iteration if messages take no time: the first micro-batch through all stages, then the others
    /// one after another.
    pub critical_path: SimSpan,
}

/// A pass of a stage: forward or backward, of one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Forward,
    Backward,
}

/// Returns the passes of a stage: as many forward passes as there are later stages, then one backward after each
/// forward, then the remaining backward passes.
fn one_forward_one_backward(stage: u32, stages: u32, micro_batches: u32) -> Vec<Pass> {
    let ahead = (stages - 1 - stage).min(micro_batches);
    let mut passes = vec![Pass::Forward; ahead as usize];
    for _ in ahead..micro_batches {
        passes.extend([Pass::Forward, Pass::Backward]);
    }
    passes.extend(vec![Pass::Backward; ahead as usize]);
    passes
}

impl Plan {
    /// Returns the plan of a job in which each rank does `load`, whose layers can be dealt to the stages.
    ///
    /// # Errors
    /// A group is too large for a schedule.
    pub(super) fn new(
        grid: Grid,
        load: &Load,
        overlap: bool,
        gpus_per_server: u32,
    ) -> Result<Self, WorkloadError> {
        let mut planner = Planner::default();
        let per_stage = load.layers / grid.pipeline;
        let exchanges = planner.exchanges(grid, load, per_stage, gpus_per_server)?;
        let parts = u64::from(per_stage) * u64::from(load.micro_batches);
        let half_layer = SimSpan::from(load.compute).as_picos() / (6 * parts);
        // Half of a layer: attention or feed-forward. Backward takes twice as long as forward.
        let times = [half_layer, 2 * half_layer].map(SimSpan::from_picos);
        let stage = |stage| {
            let passes = one_forward_one_backward(stage, grid.pipeline, load.micro_batches);
            let pass_starts = Vec::new();
            Stage {
                stage,
                grid,
                load,
                overlap,
                per_stage,
                exchanges,
                times,
                passes,
                pass_starts,
                records: 0,
            }
        };
        let (mut records, mut programs, mut repeats) = (0, Vec::new(), Vec::new());
        for number in 0..grid.pipeline {
            let mut stage = stage(number);
            let program = stage.program();
            repeats.push(stage.repeats(&program));
            programs.push(program);
            records = records.max(stage.records);
        }
        let rounds = u64::from(load.micro_batches + grid.pipeline - 1);
        let critical_path = SimSpan::from_picos(6 * half_layer * u64::from(per_stage) * rounds);
        let Planner { groups, exchanges, .. } = planner;
        Ok(Self { grid, groups, exchanges, programs, repeats, records, critical_path })
    }
}

/// The program of one stage under construction.
struct Stage<'a> {
    stage: u32,
    grid: Grid,
    load: &'a Load,
    overlap: bool,
    per_stage: u32,
    exchanges: Exchanges,
    /// The time of half a layer, forward and backward.
    times: [SimSpan; 2],
    passes: Vec<Pass>,
    /// The index of the first operation of each pass in the first lane.
    pass_starts: Vec<usize>,
    records: usize,
}

impl Stage<'_> {
    /// Returns the lanes of the stage's program.
    fn program(&mut self) -> [Vec<Op>; LANES] {
        let [mut compute, mut reduce, mut gather] = <[Vec<Op>; LANES]>::default();
        let mut progress: Vec<usize> = Vec::new();
        let mut backward_passes = 0;
        for pass in self.passes.clone() {
            backward_passes += u32::from(pass == Pass::Backward);
            let is_last = backward_passes == self.load.micro_batches;
            self.pass_starts.push(compute.len());
            self.add_receives(pass, &mut compute);
            for _ in 0..self.per_stage {
                self.gather_ahead(&progress, &mut compute, &mut gather);
                self.layer(pass, &mut compute);
                progress.push(self.record(&mut compute));
                // A rank that does not keep other ranks' parameters does not keep gradients for them either.
                let reduces = is_last || self.load.sharding == Sharding::Parameters;
                if pass == Pass::Backward && reduces {
                    reduce.push(Op::Await(self.records - 1));
                    reduce.extend(
                        self.exchanges.gradients.iter().flatten().copied().map(Op::Exchange),
                    );
                }
            }
            self.add_sends(pass, &mut compute);
        }
        if !self.overlap {
            reduce.splice(0..0, progress.last().copied().map(Op::Await));
        }
        if self.load.sharding == Sharding::Optimizer {
            for _ in 0..self.per_stage {
                let all = self.exchanges.parameters.iter().flatten();
                reduce.extend(all.copied().map(Op::Exchange));
            }
        }
        [compute, reduce, gather]
    }

    /// Returns the repetitions of the program: of a forward and a backward pass, of layers, and of their exchanges.
    fn repeats(&self, [compute, reduce, gather]: &[Vec<Op>; LANES]) -> [Vec<Repeats>; LANES] {
        let ends = |lane: &[Op]| {
            let is_record = |op: &Op| matches!(op, Op::Record(_));
            let mut places = lane.iter().enumerate().filter(|(_, op)| is_record(op));
            places.nth(1).zip(places.next()).map(|((one, _), (other, _))| other - one)
        };
        let ahead = self.grid.pipeline - 1 - self.stage;
        let pair =
            |starts: &[usize]| Some(starts.get(ahead as usize + 2)? - starts[ahead as usize]);
        let count = |exchanges: [Option<usize>; 2]| exchanges.iter().flatten().count();
        let of_gradients = 1 + count(self.exchanges.gradients);
        // A layer of a stage does not follow others at an even pace if the stages wait for each other in between.
        let layer = ends(compute).filter(|_| self.grid.pipeline == 1);
        let found = |lane: &[Op], periods: &[Option<usize>]| {
            periods.iter().flatten().map(|&period| Repeats::new(lane, period)).collect()
        };
        [
            found(compute, &[pair(&self.pass_starts), layer]),
            found(reduce, &[Some(of_gradients), Some(count(self.exchanges.parameters))]),
            found(gather, &[ends(gather)]),
        ]
    }

    /// Adds a new record to a lane; returns its number.
    fn record(&mut self, lane: &mut Vec<Op>) -> usize {
        lane.push(Op::Record(self.records));
        self.records += 1;
        self.records - 1
    }

    /// Gathers the parameters of the next layer once the layer before the current one is complete.
    fn gather_ahead(&mut self, progress: &[usize], compute: &mut Vec<Op>, gather: &mut Vec<Op>) {
        if self.load.sharding != Sharding::Parameters {
            return;
        }
        if let Some(before) = progress.len().checked_sub(2) {
            gather.push(Op::Await(progress[before]));
        }
        gather.extend(self.exchanges.parameters.iter().flatten().copied().map(Op::Exchange));
        let gathered = self.record(gather);
        compute.push(Op::Await(gathered));
    }

    /// Adds one layer in one direction.
    fn layer(&self, pass: Pass, lane: &mut Vec<Op>) {
        let compute = Op::Compute(self.times[usize::from(pass == Pass::Backward)]);
        let reduce = self.exchanges.reduce.map(Op::Exchange);
        let tokens = self.exchanges.tokens.map(Op::Exchange);
        lane.push(compute);
        lane.extend(reduce);
        lane.extend(tokens);
        lane.push(compute);
        lane.extend(tokens);
        lane.extend(reduce);
    }

    /// Adds the receives that a pass waits for.
    fn add_receives(&self, pass: Pass, lane: &mut Vec<Op>) {
        let Some([_, from_previous, _, from_next]) = self.exchanges.stage_exchanges else { return };
        match pass {
            Pass::Forward if self.stage > 0 => lane.push(Op::Exchange(from_previous)),
            Pass::Backward if !self.is_last() => lane.push(Op::Exchange(from_next)),
            _ => {}
        }
    }

    /// Adds the sends after a pass.
    fn add_sends(&self, pass: Pass, lane: &mut Vec<Op>) {
        let Some([to_next, _, to_previous, _]) = self.exchanges.stage_exchanges else { return };
        match pass {
            Pass::Forward if !self.is_last() => lane.push(Op::Exchange(to_next)),
            Pass::Backward if self.stage > 0 => lane.push(Op::Exchange(to_previous)),
            _ => {}
        }
    }

    fn is_last(&self) -> bool {
        self.stage + 1 == self.grid.pipeline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_begins_with_one_forward_pass_more_than_there_are_later_stages() {
        use Pass::{Backward as B, Forward as F};
        assert_eq!(one_forward_one_backward(0, 3, 4), [F, F, F, B, F, B, B, B]);
        assert_eq!(one_forward_one_backward(2, 3, 4), [F, B, F, B, F, B, F, B]);
        assert_eq!(one_forward_one_backward(0, 4, 2), [F, F, B, B]);
        for (stage, stages, count) in [(0, 1, 1), (1, 5, 2), (2, 4, 9)] {
            let passes = one_forward_one_backward(stage, stages, count);
            let forward = passes.iter().filter(|pass| **pass == F).count();
            assert_eq!((forward, passes.len()), (count as usize, 2 * count as usize));
        }
    }
}
