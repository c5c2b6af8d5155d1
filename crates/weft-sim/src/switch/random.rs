//! A random link for each packet: a switch that sprays, independent of the host's entropy.

use weft_topo::{LinkId, Topology};
use weft_units::{Rng, Seed};

use super::{Decision, Forward, ForwardingConfig};

/// One random stream for the fabric.
#[derive(Debug)]
pub struct Forwarding {
    rng: Rng,
}

impl Forwarding {
    pub(super) fn new(_config: &ForwardingConfig, _topology: &Topology, seed: Seed) -> Self {
        Self { rng: seed.child("switch spray", 0).rng() }
    }
}

impl Forward for Forwarding {
    #[inline]
    fn choose(&mut self, decision: &Decision<'_>) -> LinkId {
        match decision.candidates {
            [only] => *only,
            several => several[self.rng.index(several.len())],
        }
    }
}
