//! The collectives in progress: every rank of a group performs the steps of the planner's schedule.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_plan::collective::{
    Collective, Schedule, Selection, Step, all_reduce_double_tree, all_reduce_ring,
};

use crate::graph::{Graph, Operation};
use crate::time::SimTime;

/// The algorithm of long all-reduces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AllReduce {
    /// A ring: the fewest bytes, 2(N-1) steps.
    #[default]
    Ring,
    /// Two binary trees, each for half of the data, in a pipeline.
    DoubleTree,
}

/// Number of chunks in which each tree of [`AllReduce::DoubleTree`] forwards its half.
const TREE_CHUNKS: usize = 8;

/// A collective in progress.
#[derive(Debug)]
struct Running {
    schedule: Arc<Schedule>,
    places: Vec<Place>,
    /// The bytes of a message.
    message: u64,
    /// The start of its first rank.
    began: SimTime,
    /// The latest end of a rank.
    latest: SimTime,
    /// Number of ranks that have not finished.
    left: usize,
}

/// A rank's progress in a collective.
#[derive(Clone, Debug, Default)]
struct Place {
    /// The rank's node, once it has started.
    node: Option<u32>,
    step: usize,
    /// Messages that have arrived and are not consumed, by sender's place.
    arrived: BTreeMap<usize, u32>,
}

/// The next action of a rank in a collective.
pub(super) enum Action {
    /// Sends `bytes` to a place.
    Send { to: usize, bytes: u64 },
    /// Waits for a message.
    Wait,
    /// The rank's node is done; `over` if it was the last.
    Done { node: u32, over: Option<Over> },
}

/// A finished collective.
pub(super) struct Over {
    pub operation: u32,
    pub began: SimTime,
    pub latest: SimTime,
}

/// All collectives in progress, and one schedule for all of a kind and size.
#[derive(Debug, Default)]
pub(super) struct Collectives {
    running: BTreeMap<u32, Running>,
    schedules: BTreeMap<(&'static str, usize, u32, bool), Arc<Schedule>>,
    all_reduce: AllReduce,
    /// The largest operation that uses the schedule with the fewest rounds, bytes.
    small: u64,
}

impl Collectives {
    pub(super) fn new(all_reduce: AllReduce, small: u64) -> Self {
        Self { all_reduce, small, ..Self::default() }
    }

    /// Returns the operation, which begins if no rank has started it.
    fn running(&mut self, number: u32, graph: &Graph, now: SimTime) -> &mut Running {
        if !self.running.contains_key(&number) {
            let operation = graph.operations()[number as usize];
            let ranks = graph.groups()[operation.group as usize].len();
            let schedule = self.schedule(operation, ranks);
            let running = Running {
                message: message(operation, &schedule),
                schedule,
                places: vec![Place::default(); ranks],
                began: now,
                latest: now,
                left: ranks,
            };
            self.running.insert(number, running);
        }
        self.running.get_mut(&number).expect("inserted above")
    }

    fn schedule(&mut self, operation: Operation, ranks: usize) -> Arc<Schedule> {
        let small = operation.bytes <= self.small;
        let key = (operation.kind.name(), ranks, operation.root, small);
        let all_reduce = self.all_reduce;
        let make = || {
            let order: Vec<usize> = (0..ranks).collect();
            let selection = Selection { order: &order, root: operation.root as usize, small };
            Arc::new(operation.kind.schedule(selection, |order| match all_reduce {
                AllReduce::Ring => all_reduce_ring(order),
                AllReduce::DoubleTree => all_reduce_double_tree(order, TREE_CHUNKS),
            }))
        };
        Arc::clone(self.schedules.entry(key).or_insert_with(make))
    }

    /// Lets a rank take part.
    pub(super) fn join(
        &mut self,
        number: u32,
        place: usize,
        node: u32,
        graph: &Graph,
        now: SimTime,
    ) {
        let running = self.running(number, graph, now);
        running.began = running.began.min(now);
        running.places[place].node = Some(node);
    }

    /// Counts a message for a rank.
    pub(super) fn arrive(
        &mut self,
        number: u32,
        from: usize,
        to: usize,
        graph: &Graph,
        now: SimTime,
    ) {
        let running = self.running(number, graph, now);
        *running.places[to].arrived.entry(from).or_default() += 1;
    }

    /// Returns the next action of a rank.
    pub(super) fn next(&mut self, number: u32, place: usize, now: SimTime) -> Action {
        let Some(running) = self.running.get_mut(&number) else { return Action::Wait };
        let state = &mut running.places[place];
        let Some(node) = state.node else { return Action::Wait };
        while let Some(&step) = running.schedule.steps[place].get(state.step) {
            match step {
                Step::Copy { .. } => {}
                Step::Send { to, .. } => {
                    state.step += 1;
                    return Action::Send { to, bytes: running.message };
                }
                Step::Receive { from, .. } | Step::Reduce { from, .. } => {
                    let Some(arrived) = state.arrived.get_mut(&from).filter(|count| **count > 0)
                    else {
                        return Action::Wait;
                    };
                    *arrived -= 1;
                }
            }
            state.step += 1;
        }
        *state = Place::default();
        running.left -= 1;
        running.latest = running.latest.max(now);
        let Running { began, latest, left, .. } = *running;
        let over = (left == 0).then(|| {
            self.running.remove(&number);
            Over { operation: number, began, latest }
        });
        Action::Done { node, over }
    }
}

/// Returns the bytes of each message.
fn message(operation: Operation, schedule: &Schedule) -> u64 {
    let buffer = match operation.kind {
        // A buffer has one half to send and one to receive.
        Collective::AllToAll | Collective::SendReceive => operation.bytes.saturating_mul(2),
        _ => operation.bytes,
    };
    buffer.div_ceil(schedule.chunks.max(1) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::GraphBuilder;

    fn messages(kind: Collective, ranks: usize, bytes: u64) -> (usize, u64) {
        let mut builder = GraphBuilder::new(8, u64::MAX);
        builder.group((0..8).collect()).unwrap();
        let operation = Operation::new(kind, 0, bytes);
        let schedule = Collectives::default().schedule(operation, ranks);
        (schedule.sends(0), message(operation, &schedule))
    }

    #[test]
    fn messages_are_those_of_the_collectives_definition() {
        for (kind, want) in [
            (Collective::AllReduce, (14, 1_000)),
            (Collective::AllGather, (7, 1_000)),
            (Collective::ReduceScatter, (7, 1_000)),
            (Collective::AllToAll, (7, 1_000)),
            (Collective::Broadcast, (1, 8_000)),
            (Collective::Scatter, (7, 1_000)),
            (Collective::SendReceive, (1, 8_000)),
        ] {
            assert_eq!(messages(kind, 8, 8_000), want, "{kind}");
        }
    }
}
