//! The channels between ranks that exchange data.

use super::exchange::{Exchange, Peers};
use super::job::{Job, small};
use super::op::{LANES, Op};
use super::rank::{BACKWARD, FORWARD};
use crate::world::Session;

impl Job {
    /// Opens the channels of every exchange in some rank's program.
    pub(super) fn open(&mut self, session: &mut Session<'_>) {
        for rank in self.representatives.ranks() {
            let stage = self.plan.grid.stage(rank) as usize;
            let mut known = Vec::new();
            for lane in 0..LANES {
                for op in &self.plan.programs[stage][lane] {
                    if let Op::Exchange(exchange) = *op
                        && !known.contains(&(lane, exchange))
                    {
                        known.push((lane, exchange));
                    }
                }
            }
            for (lane, exchange) in known {
                for (to, groups) in self.peers(rank, &self.plan.exchanges[exchange]) {
                    self.connect((rank, to, small(lane), groups), session);
                }
            }
        }
    }

    /// Opens the channels between two ranks for a lane and groups, unless they are open or the ranks share a server.
    fn connect(&mut self, key: (u32, u32, u8, u8), session: &mut Session<'_>) {
        let [from, to] = [key.0, key.1].map(|rank| &self.ranks[rank as usize]);
        if from.server == to.server {
            return;
        }
        let pairs = self.config.queue_pairs;
        let ends = (from.host, to.host);
        let open = || (0..pairs).map(|_| session.open(ends.0, ends.1)).collect();
        self.channels.entry(key).or_insert_with(open);
    }

    /// Returns the ranks to which a rank sends in an exchange, each with the index of the groups.
    pub(super) fn peers(&self, rank: u32, exchange: &Exchange) -> Vec<(u32, u8)> {
        let mut peers = Vec::new();
        for phase in &exchange.phases {
            match &phase.with {
                Peers::Group(groups, moves) => {
                    let (group, place) = self.plan.groups[*groups].of(rank);
                    let to = moves.destinations(place).iter();
                    peers.extend(to.map(|&(to, _)| (group[to], small(*groups))));
                }
                Peers::Send { forward } => peers.push(self.neighbour(rank, *forward)),
                Peers::Receive { .. } => {}
            }
        }
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    /// Returns the rank with the same position in the next or previous stage, and the inlet for messages from there.
    pub(super) const fn neighbour(&self, rank: u32, forward: bool) -> (u32, u8) {
        let distance = self.plan.grid.stage_size();
        if forward { (rank + distance, FORWARD) } else { (rank - distance, BACKWARD) }
    }
}
