//! The exchanges between ranks: collectives, their groups, and their bytes.

use std::ops::Range;
use std::sync::Arc;

use weft_plan::collective::{Collective, Selection, all_reduce_ring};

use super::grid::{Grid, Groups};
use super::model::{Load, Sharding};
use super::moves::Moves;
use crate::workload::WorkloadError;

/// Maximum number of ranks of a group: a schedule has a step for every pair of ranks.
const MAX_MEMBERS: usize = 2048;

/// Minimum number of rounds of a ring in which their pace is found: the measured ones, and as many to drain.
const MIN_ROUNDS: usize = 6;

/// Number of rounds of a ring for each one in the shortest unit of measurement, and the maximum number in that. Single
/// rounds of a long ring vary by several per cent without a trend; units of several vary less, and a long ring has enough
/// of them.
const ROUNDS_PER_MEASURED: usize = 32;
const MAX_MEASURED: usize = 4;

/// Minimum number of rounds of a ring for each one in a longer unit of measurement, so that the units that are compared
/// are at most a quarter of the ring.
const ROUNDS_PER_LONGEST: usize = 16;

/// The kind of parallelism an exchange belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parallelism {
    Tensor,
    Pipeline,
    Data,
    Expert,
}

/// A communication among ranks: phases, one after another.
#[derive(Debug)]
pub(super) struct Exchange {
    pub kind: Parallelism,
    pub phases: Vec<Phase>,
}

/// One phase of an exchange.
#[derive(Debug)]
pub(super) struct Phase {
    pub with: Peers,
    /// The bytes of a rank's whole buffer, which is cut into messages.
    pub bytes: u64,
}

impl Exchange {
    /// Returns `true` if it is one ring from its first step to its last, of rounds enough to find their pace in it.
    pub(super) fn is_long_ring(&self) -> bool {
        let [only] = &self.phases[..] else { return false };
        only.rounds().is_some_and(|rounds| rounds.start == 0 && rounds.end >= 2 * MIN_ROUNDS)
    }
}

impl Phase {
    /// Returns the steps that are rounds of a ring.
    pub(super) fn rounds(&self) -> Option<Range<usize>> {
        match &self.with {
            Peers::Group(_, moves) => moves.rounds(),
            Peers::Send { .. } | Peers::Receive { .. } => None,
        }
    }

    /// Returns the numbers of rounds that are measured as one unit: the shortest unit, and longer ones, each twice as long
    /// as the one before, which vary less.
    pub(super) fn units_measured(&self) -> impl Iterator<Item = u64> {
        let rounds = self.rounds().map_or(0, |steps| steps.len() / 2);
        let shortest = (rounds / ROUNDS_PER_MEASURED).clamp(1, MAX_MEASURED);
        let longer =
            move |unit: &usize| Some(2 * unit).filter(|it| it * ROUNDS_PER_LONGEST <= rounds);
        std::iter::successors(Some(shortest), longer).map(|unit| unit as u64)
    }
}

/// The peers of a phase.
#[derive(Debug)]
pub(super) enum Peers {
    /// A group, by its index in the plan's groups, with the moves of the planner's schedule.
    Group(usize, Arc<Moves>),
    /// Sends to the next stage, or back to the previous one.
    Send { forward: bool },
    /// Receives from the previous stage, or back from the next one.
    Receive { forward: bool },
}

/// Ranks that hold the same data, as whole groups and, if possible, by server.
#[derive(Clone, Copy, Debug)]
struct Axis {
    whole: usize,
    /// The groups inside a server, the groups across servers, and the number of members per server.
    split: Option<(usize, usize, u64)>,
}

/// The exchanges of a stage; `None` where nothing is exchanged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exchanges {
    /// The all-reduce of tensor parallelism.
    pub reduce: Option<usize>,
    /// The all-to-all of tokens.
    pub tokens: Option<usize>,
    /// The exchanges with neighbouring stages: send and receive forward, send and receive backward.
    pub stage_exchanges: Option<[usize; 4]>,
    /// The reductions of the gradients of a layer and of its experts.
    pub gradients: [Option<usize>; 2],
    /// The gatherings of the parameters of a layer and of its experts.
    pub parameters: [Option<usize>; 2],
}

/// Collects groups and exchanges, and the moves of all groups of a size.
#[derive(Debug, Default)]
pub(super) struct Planner {
    pub groups: Vec<Groups>,
    pub exchanges: Vec<Exchange>,
    moves: Vec<(Collective, usize, Arc<Moves>)>,
}

impl Planner {
    /// Returns the exchanges of every stage.
    ///
    /// # Errors
    /// A group is too large for a schedule.
    pub(super) fn exchanges(
        &mut self,
        grid: Grid,
        load: &Load,
        layers: u32,
        gpus: u32,
    ) -> Result<Exchanges, WorkloadError> {
        let units = u64::from(layers) * u64::from(load.micro_batches);
        let tensor = self.axis(grid.tensor_groups(), gpus);
        let reduce = self.collective(
            Parallelism::Tensor,
            tensor,
            Collective::AllReduce,
            load.tensor.0.div_ceil(4 * units),
        )?;
        let expert = self.axis(grid.expert_groups(), gpus);
        let whole = Axis { split: None, ..expert };
        let tokens = self.collective(
            Parallelism::Expert,
            whole,
            Collective::AllToAll,
            load.tokens.0.div_ceil(units),
        )?;
        let replicas = [grid.data_groups(), grid.replicas_of_experts()];
        let replicas = replicas.map(|groups| self.axis(groups, gpus));
        let sizes = [load.gradients.0, load.expert_gradients.0];
        let sizes = sizes.map(|bytes| bytes.div_ceil(u64::from(layers)));
        let first = match load.sharding {
            Sharding::Nothing => Collective::AllReduce,
            Sharding::Optimizer | Sharding::Parameters => Collective::ReduceScatter,
        };
        let (mut gradients, mut parameters) = ([None; 2], [None; 2]);
        for (index, (&axis, &bytes)) in replicas.iter().zip(&sizes).enumerate() {
            gradients[index] = self.collective(Parallelism::Data, axis, first, bytes)?;
            if load.sharding != Sharding::Nothing {
                let bytes = scaled(bytes, load.parameters);
                let gather = Collective::AllGather;
                parameters[index] = self.collective(Parallelism::Data, axis, gather, bytes)?;
            }
        }
        let stage_exchanges = self.stage_exchanges(grid, load);
        Ok(Exchanges { reduce, tokens, stage_exchanges, gradients, parameters })
    }

    /// Returns the exchanges that send and receive forward, then those that send and receive backward.
    fn stage_exchanges(&mut self, grid: Grid, load: &Load) -> Option<[usize; 4]> {
        let bytes = load.pipeline.0.div_ceil(u64::from(load.micro_batches));
        let directions = [
            Peers::Send { forward: true },
            Peers::Receive { forward: true },
            Peers::Send { forward: false },
            Peers::Receive { forward: false },
        ];
        // The receiver also waits for an empty result.
        let add = |with| self.add(Parallelism::Pipeline, vec![Phase { with, bytes: bytes.max(1) }]);
        (grid.pipeline > 1).then(|| directions.map(add))
    }

    /// Adds groups, whole and by server.
    fn axis(&mut self, groups: Groups, gpus_per_server: u32) -> Axis {
        let split = groups.by_server(gpus_per_server).map(|(local, across)| {
            let count = local.size() as u64;
            (self.add_groups(local), self.add_groups(across), count)
        });
        Axis { whole: self.add_groups(groups), split }
    }

    fn add_groups(&mut self, groups: Groups) -> usize {
        self.groups.push(groups);
        self.groups.len() - 1
    }

    fn add(&mut self, kind: Parallelism, phases: Vec<Phase>) -> usize {
        self.exchanges.push(Exchange { kind, phases });
        self.exchanges.len() - 1
    }

    /// Returns a collective of `bytes`, or `None` if there are no bytes or no peers. Where servers have several
    /// members of a group, the phases inside servers come first and last, and each rank sends its part between servers
    /// on its own rail (as `weft_plan::collective::all_reduce_hierarchical`).
    fn collective(
        &mut self,
        kind: Parallelism,
        axis: Axis,
        collective: Collective,
        bytes: u64,
    ) -> Result<Option<usize>, WorkloadError> {
        if bytes == 0 || self.groups[axis.whole].size() < 2 {
            return Ok(None);
        }
        let Some((local, across, count)) = axis.split else {
            let phases = vec![self.phase(axis.whole, collective, bytes)?];
            return Ok(Some(self.add(kind, phases)));
        };
        let part = bytes.div_ceil(count);
        let mut phases = Vec::new();
        if matches!(collective, Collective::AllReduce | Collective::ReduceScatter) {
            phases.push(self.phase(local, Collective::ReduceScatter, bytes)?);
        }
        phases.push(self.phase(across, collective, part)?);
        if matches!(collective, Collective::AllReduce | Collective::AllGather) {
            phases.push(self.phase(local, Collective::AllGather, bytes)?);
        }
        Ok(Some(self.add(kind, phases)))
    }

    /// Returns one phase of a collective, whose moves are shared by all groups of its size.
    fn phase(
        &mut self,
        groups: usize,
        collective: Collective,
        bytes: u64,
    ) -> Result<Phase, WorkloadError> {
        let ranks = self.groups[groups].size();
        if ranks > MAX_MEMBERS {
            let (got, expected) = (format!("{ranks} ranks"), "at most 2,048 in a ring");
            return Err(WorkloadError::OutOfRange { key: "a group", got, expected });
        }
        let known =
            self.moves.iter().find(|(other, size, _)| (*other, *size) == (collective, ranks));
        let moves = match known {
            Some((_, _, moves)) => Arc::clone(moves),
            None => {
                let order: Vec<usize> = (0..ranks).collect();
                let selection = Selection { order: &order, root: 0, small: false };
                let moves = Moves::new(&collective.schedule(selection, all_reduce_ring));
                let moves = Arc::new(moves);
                self.moves.push((collective, ranks, Arc::clone(&moves)));
                moves
            }
        };
        Ok(Phase { with: Peers::Group(groups, moves), bytes })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "sizes of messages"
)]
fn scaled(bytes: u64, factor: f64) -> u64 {
    (bytes as f64 * factor).ceil() as u64
}

#[cfg(test)]
mod tests {
    use weft_plan::collective::all_gather_ring;

    use super::*;

    #[test]
    fn the_longer_a_ring_the_more_of_its_rounds_are_measured_as_one() {
        let measured = |ranks: usize| {
            let ring = all_gather_ring(&(0..ranks).collect::<Vec<_>>());
            let phase = Phase { with: Peers::Group(0, Arc::new(Moves::new(&ring))), bytes: 1 };
            phase.units_measured().collect::<Vec<_>>()
        };
        assert_eq!([2, 16].map(measured), [[1], [1]]);
        assert_eq!([64, 65, 128].map(measured), [[1, 2], [2, 4], [3, 6]]);
        assert_eq!(measured(2048), [4, 8, 16, 32, 64]);
    }
}
