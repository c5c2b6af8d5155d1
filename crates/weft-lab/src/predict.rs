//! Which spine a flow takes, computed with the kernel's own hash.

use weft_topo::hash::FiveTuple;
use weft_topo::hash::linux::{Fields, Policy, multipath_hash, select_weighted};

use crate::fabric::Fabric;

/// What a leaf hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Sending host, by number.
    pub source: usize,
    /// Receiving host, by number.
    pub destination: usize,
    /// IP protocol: 17 for UDP, 6 for TCP.
    pub protocol: u8,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

impl Fabric {
    /// The spine that a flow takes while every link is up; `None` when both hosts share a leaf.
    ///
    /// # Panics
    /// If a host does not exist.
    pub fn spine_of(&self, flow: &Flow) -> Option<usize> {
        self.spine_among(flow, |_| true)
    }

    /// Source ports from `first` upward that take `flow` over `spine` while every link is up.
    ///
    /// # Panics
    /// If a host does not exist.
    pub fn ports_over(
        &self,
        flow: &Flow,
        spine: usize,
        first: u16,
    ) -> impl Iterator<Item = u16> + '_ {
        let flow = *flow;
        (first..=u16::MAX)
            .filter(move |&source_port| self.spine_of(&Flow { source_port, ..flow }) == Some(spine))
    }

    /// The spine that a flow takes when only those that are `usable` are in the route.
    pub(crate) fn spine_among(&self, flow: &Flow, usable: impl Fn(usize) -> bool) -> Option<usize> {
        let leaf = self.leaf_of(flow.source);
        if leaf == self.leaf_of(flow.destination) {
            return None;
        }
        let tuple = FiveTuple {
            src: self.address(flow.source).into(),
            dst: self.address(flow.destination).into(),
            src_port: flow.source_port,
            dst_port: flow.destination_port,
            protocol: flow.protocol,
        };
        let policy = Policy::Fields(Fields::FIVE_TUPLE);
        let hash = multipath_hash(policy, self.leaf(leaf).hash_seed, &tuple);
        let weights: Vec<u32> = (0..self.spines()).map(|spine| u32::from(usable(spine))).collect();
        select_weighted(hash, &weights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LabSpec;

    fn flow(source: usize, destination: usize) -> Flow {
        Flow { source, destination, protocol: 17, source_port: 0, destination_port: 4791 }
    }

    #[test]
    fn every_spine_has_ports_that_reach_it() {
        let fabric = Fabric::new(&LabSpec { spines: 8, ..LabSpec::named("t") }).unwrap();
        for spine in 0..8 {
            let port = fabric.ports_over(&flow(0, 1), spine, 0xc000).next().unwrap();
            let found = fabric.spine_of(&Flow { source_port: port, ..flow(0, 1) });
            assert_eq!(found, Some(spine));
        }
    }

    #[test]
    fn hosts_behind_one_leaf_use_no_spine() {
        let fabric = Fabric::new(&LabSpec { hosts_per_leaf: 2, ..LabSpec::named("t") }).unwrap();
        assert_eq!(fabric.spine_of(&flow(0, 1)), None);
        assert!(fabric.spine_of(&flow(1, 2)).is_some());
    }
}
