//! The choice of the ranks that are simulated for all: those of one part, if every part has equal routes over links of its
//! own.

use std::collections::BTreeSet;

use super::exchange::{Parallelism, Peers};
use super::job::Job;
use super::op::{LANES, Op};
use super::representatives::Representatives;
use crate::fast_forward::{EqualParts, Pairs, Refusal, are_equal};
use crate::world::Network;

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
            self.representatives = Representatives::first(width, self.plan.grid);
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
                Peers::Group(_, moves) => moves.is_rotational(),
                _ => false,
            })
    }

    /// Returns the pairs of hosts that exchange packets for the ranks of one part.
    fn pairs_of_part(&self, part: u32, width: u32) -> Pairs {
        let first = Representatives::first(width, self.plan.grid);
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
