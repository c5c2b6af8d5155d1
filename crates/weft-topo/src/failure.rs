//! The failed cables and switches. They are kept apart from the topology, which does not change.

use alloc::vec::Vec;

use crate::graph::{LinkId, NodeId, Topology};

/// The set of cables and switches that are down. A cable fails in both directions, as with a cut
/// fibre or a port that is shut down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    cables: Bits,
    nodes: Bits,
}

impl Failures {
    /// Returns the empty set.
    pub const fn none() -> Self {
        Self { cables: Bits(Vec::new()), nodes: Bits(Vec::new()) }
    }

    /// Takes down the cable of `link`, in both directions.
    pub fn fail_link(&mut self, link: LinkId) {
        self.cables.set(link.cable(), true);
    }

    /// Repairs the cable of `link`. It stays unusable while the node at either end is down.
    pub fn repair_link(&mut self, link: LinkId) {
        self.cables.set(link.cable(), false);
    }

    /// Takes down a switch or a host, and with it all its cables.
    pub fn fail_node(&mut self, node: NodeId) {
        self.nodes.set(node.0, true);
    }

    /// Repairs a switch or a host. Cables that [`Self::fail_link`] took down stay down.
    pub fn repair_node(&mut self, node: NodeId) {
        self.nodes.set(node.0, false);
    }

    /// Returns `true` if `link` can carry packets: its cable and the nodes at both ends are up.
    pub fn is_up(&self, topology: &Topology, link: LinkId) -> bool {
        if self.cables.contains(link.cable()) {
            return false;
        }
        let ends = topology.link(link);
        !self.nodes.contains(ends.from.0) && !self.nodes.contains(ends.to.0)
    }

    /// Returns `true` if nothing is down.
    pub fn is_empty(&self) -> bool {
        self.cables.is_empty() && self.nodes.is_empty()
    }
}

/// A set of small numbers as a bitmap; numbers past the bitmap's end are not in the set.
#[derive(Clone, Debug, Default, Eq)]
struct Bits(Vec<u64>);

impl Bits {
    fn set(&mut self, number: u32, member: bool) {
        let (word, bit) = (number as usize / 64, number % 64);
        if word >= self.0.len() {
            if !member {
                return;
            }
            self.0.resize(word + 1, 0);
        }
        self.0[word] = self.0[word] & !(1 << bit) | u64::from(member) << bit;
    }

    fn contains(&self, number: u32) -> bool {
        self.0.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }
}

impl PartialEq for Bits {
    /// Compares sets: the trailing zero words that a repaired failure leaves do not count.
    fn eq(&self, other: &Self) -> bool {
        let (short, long) =
            if self.0.len() < other.0.len() { (&self.0, &other.0) } else { (&other.0, &self.0) };
        short[..] == long[..short.len()] && long[short.len()..].iter().all(|&word| word == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_of_a_failed_cable_are_down_until_it_is_repaired() {
        let topology = crate::build::LeafSpine::default().build().unwrap();
        let mut failures = Failures::none();
        failures.fail_link(LinkId(301));
        assert!(!failures.is_up(&topology, LinkId(300)) && !failures.is_up(&topology, LinkId(301)));
        assert!(failures.is_up(&topology, LinkId(302)));
        failures.repair_link(LinkId(300));
        assert_eq!(failures, Failures::none());
    }

    #[test]
    fn a_repaired_switch_leaves_its_broken_cable_broken() {
        let topology = crate::build::LeafSpine::default().build().unwrap();
        let leaf = NodeId(128);
        let [first, second] = [topology.ports(leaf)[0], topology.ports(leaf)[1]];
        let mut failures = Failures::none();
        failures.fail_link(first);
        failures.fail_node(leaf);
        assert!(!failures.is_up(&topology, second));
        failures.repair_node(leaf);
        assert!(failures.is_up(&topology, second));
        assert!(!failures.is_up(&topology, first));
        assert!(!failures.is_empty());
    }
}
