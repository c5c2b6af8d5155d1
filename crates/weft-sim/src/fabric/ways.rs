//! Paths through a network whose switches choose by hash alone, computed without sending a packet.

use weft_topo::hash::FiveTuple;
use weft_topo::{LinkId, NodeId};

use super::Fabric;
use crate::switch::Forwarding;

impl Fabric {
    /// Returns the links that packets of this five-tuple take to `destination` from `first` on, `first` included; the
    /// path ends at a switch that chooses otherwise or has no route.
    pub fn way(&self, first: LinkId, tuple: &FiveTuple, destination: NodeId) -> Vec<LinkId> {
        let mut way = vec![first];
        let base = self.hash.base(tuple);
        let Forwarding::Ecmp(hash) = &self.forwarding else { return way };
        let mut at = self.topology.link(first).to;
        while at != destination {
            let links = self.routes.next_links(at, destination);
            if links.is_empty() {
                break;
            }
            let switch = (at.0 - self.hosts) as usize;
            let link = links[hash.entry_of(switch, base, || *tuple, links.len())];
            way.push(link);
            at = self.topology.link(link).to;
        }
        way
    }

    /// Returns the number of paths from a link to `destination`.
    pub fn ways(&self, first: LinkId, destination: NodeId) -> usize {
        let at = self.topology.link(first).to;
        if at == destination {
            return 1;
        }
        self.routes
            .next_links(at, destination)
            .iter()
            .map(|&link| self.ways(link, destination))
            .sum()
    }
}
