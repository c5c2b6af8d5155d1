//! The shortest queue among all candidates for each packet: adaptive routing with perfect knowledge of the switch's
//! own ports. Ties go to the next candidate after the last one used, so that an idle fabric is filled in turn.

use weft_topo::{LinkId, Topology};
use weft_units::Seed;

use super::{Decision, Forward, ForwardingConfig};

/// The candidate at which each switch begins its search.
#[derive(Debug)]
pub struct Forwarding {
    next: Vec<u32>,
}

impl Forwarding {
    pub(super) fn new(_config: &ForwardingConfig, topology: &Topology, seed: Seed) -> Self {
        let mut rng = seed.child("switch first look", 0).rng();
        Self { next: topology.switch_ids().map(|_| rng.next_u32() >> 8).collect() }
    }
}

impl Forward for Forwarding {
    #[inline]
    fn choose(&mut self, decision: &Decision<'_>) -> LinkId {
        if let [only] = decision.candidates {
            return *only;
        }
        let next = &mut self.next[decision.switch];
        *next = next.wrapping_add(1);
        let count = decision.candidates.len();
        let start = *next as usize % count;
        (0..count)
            .map(|step| decision.candidates[(start + step) % count])
            .min_by_key(|link| decision.links[link.index()].backlog(decision.now))
            .expect("there is at least one candidate")
    }
}
