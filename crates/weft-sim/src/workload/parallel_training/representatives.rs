//! The ranks that are simulated for all.
//!
//! The ranks of a tensor-parallel group do the same at the same time, each with the ranks of equal place in other groups.
//! Where the groups are inside servers and their first `width` places have links of their own and routes equal to those
//! of the next `width` places, and so on, only the first are simulated. Inside a server a collective looks the same from
//! every place, so that a message to a rank that is not simulated arrives at the one that represents it, as if it came
//! from as many places before that one.

use std::collections::BTreeSet;

use weft_plan::collective::{Schedule, Step};

use super::exchange::{Parallelism, Peers};
use super::grid::Grid;
use super::job::Job;
use super::op::{LANES, Op};
use super::rank::Inlet;
use crate::fast_forward::{EqualParts, Pairs, Refusal, are_equal};
use crate::world::Network;

/// The ranks that are simulated: the first places of each tensor-parallel group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Representatives {
    grid: Grid,
    /// Number of places of a group that are simulated; divides the group.
    width: u32,
}

impl Representatives {
    /// Returns all ranks.
    pub(super) const fn all(grid: Grid) -> Self {
        Self { grid, width: grid.tensor }
    }

    /// Returns the number of equal parts, of which one is simulated.
    pub(super) const fn parts(self) -> u32 {
        self.grid.tensor / self.width
    }

    /// Returns the number of places of each tensor-parallel group that are simulated.
    pub(super) const fn width(self) -> u32 {
        self.width
    }

    /// Returns the degrees of parallelism of the whole job.
    pub(super) const fn grid(self) -> Grid {
        self.grid
    }

    /// Returns the number of ranks that are simulated.
    pub(super) const fn count(self) -> u32 {
        self.grid.stage_size() * self.grid.pipeline / self.parts()
    }

    /// Returns the ranks that are simulated.
    pub(super) fn ranks(self) -> impl Iterator<Item = u32> {
        let (width, tensor) = (self.width, self.grid.tensor);
        (0..self.count()).map(move |index| index / width * tensor + index % width)
    }

    /// Returns the rank that represents the receiver of a message, and the inlet for the message there.
    pub(super) fn receiver(self, from: u32, to: u32, inlet: Inlet) -> (u32, Inlet) {
        let tensor = self.grid.tensor;
        let place = to % tensor;
        let distance = place - place % self.width;
        if from / tensor != to / tensor || distance == 0 {
            return (to, inlet);
        }
        let sender = (from % tensor + tensor - distance) % tensor;
        let from = u16::try_from(sender).expect("checked when it was built");
        (to - distance, Inlet { from, ..inlet })
    }
}

impl Job {
    /// Finds the fewest ranks that can be simulated for all, if the run may skip.
    pub(super) fn choose_representatives(&mut self, network: &Network) {
        let found = if !network.has_one_undisturbed_workload() {
            Err(Refusal::NotAlone)
        } else if self.parts_wait() {
            Err(Refusal::PartsWait)
        } else {
            self.equal_width(network).ok_or(Refusal::NoEqualParts)
        };
        self.refusal = found.as_ref().err().copied();
        if let Ok(width) = found {
            self.representatives = Representatives { grid: self.plan.grid, width };
        }
    }

    /// Returns `true` if the ranks of a tensor-parallel group wait for each other after every exchange of tokens. These
    /// share links with many others and take unequal times, so that the slowest of all parts sets the pace.
    fn parts_wait(&self) -> bool {
        let has = |kind| self.plan.exchanges.iter().any(|exchange| exchange.kind == kind);
        has(Parallelism::Tensor) && has(Parallelism::Expert)
    }

    /// Returns the fewest places of each tensor-parallel group that can be simulated for all.
    fn equal_width(&self, network: &Network) -> Option<u32> {
        let tensor = self.plan.grid.tensor;
        let (topology, routes) = (&network.fabric.topology, network.fabric.routes());
        let widths = (1..tensor).filter(|&width| tensor.is_multiple_of(width));
        widths.filter(|_| self.is_inside_servers()).find(|&width| {
            let parts = (0..tensor / width).map(|part| self.pairs_of_part(part, width));
            are_equal(topology, routes, &parts.collect::<Vec<_>>())
        })
    }

    /// Returns `true` if every tensor-parallel group is inside a server and its collectives look the same from each place.
    fn is_inside_servers(&self) -> bool {
        let of_tensor =
            self.plan.exchanges.iter().filter(|exchange| exchange.kind == Parallelism::Tensor);
        let phases = of_tensor.flat_map(|exchange| &exchange.phases);
        self.config.server.gpus().is_multiple_of(self.plan.grid.tensor)
            && phases.into_iter().all(|phase| match &phase.with {
                Peers::Group(_, schedule) => is_rotational(schedule),
                _ => false,
            })
    }

    /// Returns the pairs of hosts that exchange packets for the ranks of one part.
    fn pairs_of_part(&self, part: u32, width: u32) -> Pairs {
        let first = Representatives { grid: self.plan.grid, width };
        let exchanges = self.plan.programs.iter().map(exchanges_of);
        let exchanges: Vec<BTreeSet<usize>> = exchanges.collect();
        let mut pairs = Pairs::new();
        for rank in first.ranks().map(|rank| rank + part * width) {
            let from = &self.ranks[rank as usize];
            let of_stage = &exchanges[self.plan.grid.stage(rank) as usize];
            let peers = of_stage.iter().flat_map(|&it| self.peers(rank, &self.plan.exchanges[it]));
            let others = peers.map(|(to, _)| &self.ranks[to as usize]);
            let others = others.filter(|to| to.server != from.server);
            pairs.extend(others.map(|to| (from.host, to.host)));
        }
        pairs
    }

    /// Returns the equal parts of the job, and the bytes that were sent for the first one only.
    pub(super) fn found_parts(&self) -> Result<EqualParts, Refusal> {
        match self.refusal {
            Some(refusal) => Err(refusal),
            None => {
                let count = u64::from(self.representatives.parts());
                Ok(EqualParts { count, bytes: (count - 1) * self.sent_bytes })
            }
        }
    }
}

/// Returns the exchanges in the lanes of a stage.
fn exchanges_of(lanes: &[Vec<Op>; LANES]) -> BTreeSet<usize> {
    let exchanges = lanes.iter().flatten().filter_map(|op| match *op {
        Op::Exchange(exchange) => Some(exchange),
        _ => None,
    });
    exchanges.collect()
}

/// Returns `true` if every place has the steps of the first one, with peers as many places further.
fn is_rotational(schedule: &Schedule) -> bool {
    let places = schedule.steps.len();
    let seen_from = |place: usize, step: &Step| {
        let distance = |peer: usize| (peer + places - place) % places;
        match *step {
            Step::Send { to, .. } => (0, distance(to)),
            Step::Receive { from, .. } | Step::Reduce { from, .. } => (1, distance(from)),
            Step::Copy { .. } => (2, 0),
        }
    };
    let first: Vec<_> = schedule.steps[0].iter().map(|step| seen_from(0, step)).collect();
    schedule.steps.iter().enumerate().all(|(place, steps)| {
        steps.iter().map(|step| seen_from(place, step)).eq(first.iter().copied())
    })
}

#[cfg(test)]
mod tests {
    use weft_plan::collective::{all_gather_ring, all_reduce_ring, broadcast_chain};

    use super::*;

    const GRID: Grid = Grid { tensor: 8, pipeline: 2, data: 2, expert: 1 };

    #[test]
    fn the_first_places_of_each_group_represent_the_others() {
        let first = Representatives { grid: GRID, width: 2 };
        assert_eq!((first.parts(), first.count()), (4, 8));
        assert_eq!(first.ranks().collect::<Vec<_>>(), [0, 1, 8, 9, 16, 17, 24, 25]);
        assert!(Representatives::all(GRID).ranks().eq(0..32));
    }

    #[test]
    fn a_message_to_another_part_arrives_as_that_part_s_does_here() {
        let first = Representatives { grid: GRID, width: 2 };
        let inlet = |from| Inlet { lane: 0, groups: 3, from, slice: 1 };
        // Place 1 sends to place 2 what place 7 sends to place 0, and place 2 to place 3 what 0 sends to 1.
        assert_eq!(first.receiver(9, 10, inlet(1)), (8, inlet(7)));
        assert_eq!(first.receiver(8, 9, inlet(0)), (9, inlet(0)));
        assert_eq!(first.receiver(9, 15, inlet(1)), (9, inlet(3)));
        assert_eq!(first.receiver(1, 9, inlet(1)), (9, inlet(1)), "in another group");
    }

    #[test]
    fn a_ring_looks_the_same_from_every_place_and_a_broadcast_does_not() {
        let order: Vec<usize> = (0..5).collect();
        assert!(is_rotational(&all_gather_ring(&order)));
        assert!(is_rotational(&all_reduce_ring(&order)));
        assert!(!is_rotational(&broadcast_chain(&order, 2)));
    }
}
