//! Equal-cost multipath: a hash of the five-tuple, with a seed for each switch.
//!
//! The host hashed the packet once; each switch only adds its salt (see [`FabricHash`]). Linux's hash is not affine
//! and is computed in full at every hop.

use weft_topo::hash::{FabricHash, FiveTuple, SwitchChoice, SwitchSalt};
use weft_topo::{LinkId, Topology};
use weft_units::Seed;

use super::{Decision, Forward, ForwardingConfig, five_tuple};

/// The switches' salts.
#[derive(Clone, Debug)]
pub struct Forwarding {
    hash: FabricHash,
    salts: Vec<SwitchSalt>,
}

impl Forwarding {
    pub(super) fn new(config: &ForwardingConfig, topology: &Topology, seed: Seed) -> Self {
        let hash = FabricHash::new(config.hash);
        let salt = |(index, switch)| {
            // Linux takes a zero seed for "choose one at random", so the salt is never zero.
            let salt = seed.child("switch hash", index).rng().next_u32() | 1;
            let above_leaf = u32::from(topology.tier(switch)).saturating_sub(1);
            hash.salt(salt, above_leaf * config.rotate_by_tier)
        };
        let salts = (0..).zip(topology.switch_ids()).map(salt).collect();
        Self { hash, salts }
    }

    /// Returns the choice of a switch from the packet's hash alone.
    #[inline]
    pub(crate) fn choice(&self, switch: usize) -> Option<SwitchChoice> {
        self.hash.choice(self.salts[switch])
    }

    /// Returns the index among `count` equal entries that a flow has at a switch, from its hash at the host.
    pub(crate) fn entry_of(
        &self,
        switch: usize,
        base: u32,
        tuple: impl FnOnce() -> FiveTuple,
        count: usize,
    ) -> usize {
        self.hash.select(base, tuple, self.salts[switch], count)
    }

    /// Returns the index among `count` equal entries of the packet's flow at this switch.
    #[inline(always)]
    pub(super) fn entry(&self, decision: &Decision<'_>, count: usize) -> usize {
        let &Decision { hop, switch, packets, .. } = decision;
        self.hash.select(hop.hash(), || five_tuple(hop, packets), self.salts[switch], count)
    }
}

impl Forward for Forwarding {
    #[inline(always)]
    fn choose(&mut self, decision: &Decision<'_>) -> LinkId {
        decision.candidates[self.entry(decision, decision.candidates.len())]
    }
}
