//! Paths through a network whose switches choose by hash alone, computed without sending a packet.

use weft_topo::hash::FiveTuple;
use weft_topo::{LinkId, NodeId};

use super::Fabric;
use crate::switch::Forwarding;

impl Fabric {
    /// Returns the links that packets of this five-tuple take to `destination`, `first` included. If switches do not
    /// choose by hash alone, that is `first`; if a switch has no route, the path ends there.
    pub fn path_of(&self, first: LinkId, tuple: &FiveTuple, destination: NodeId) -> Vec<LinkId> {
        let mut path = vec![first];
        let base = self.hash.base(tuple);
        let Forwarding::Ecmp(hash) = &self.forwarding else { return path };
        let mut at = self.topology.link(first).to;
        while at != destination {
            let links = self.routes.next_links(at, destination);
            if links.is_empty() {
                break;
            }
            let switch = (at.0 - self.hosts) as usize;
            let link = links[hash.entry_of(switch, base, || *tuple, links.len())];
            path.push(link);
            at = self.topology.link(link).to;
        }
        path
    }

    /// Returns the number of paths from a link to `destination`.
    pub fn path_count(&self, first: LinkId, destination: NodeId) -> usize {
        let at = self.topology.link(first).to;
        if at == destination {
            return 1;
        }
        self.routes
            .next_links(at, destination)
            .iter()
            .map(|&link| self.path_count(link, destination))
            .sum()
    }
}
