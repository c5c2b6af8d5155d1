//! LetFlow: a random link for each flowlet (Vanini et al. 2017).
//!
//! A flow that was idle for longer than its packets could differ in delay may move to another link without reordering.
//! Packets on slow paths have larger gaps, so flows leave those more often than fast ones; there is no other
//! balancing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::{LinkId, Topology};
use weft_units::{Duration, Rng, Seed};

use super::flow::{Flow, FlowTable};
use super::{Decision, Forward, ForwardingConfig, ParameterError, ecmp};
use crate::time::SimSpan;

/// LetFlow's parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Idle time that ends a flowlet.
    pub flowlet_timeout: Duration,
    /// Idle time after which a switch forgets a flow.
    pub aging: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { flowlet_timeout: Duration::from_micros(100), aging: Duration::from_millis(2) }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), ParameterError> {
        super::not_zero("flowlet_timeout", self.flowlet_timeout)?;
        super::not_zero("aging", self.aging)
    }
}

/// The link of each switch's flowlets.
#[derive(Debug)]
pub struct Forwarding {
    timeout: SimSpan,
    /// Flow tables by switch; a flow without a flowlet has no link.
    flowlets: Vec<FlowTable<Option<LinkId>>>,
    control: ecmp::Forwarding,
    rng: Rng,
}

impl Forwarding {
    pub(super) fn new(config: &ForwardingConfig, topology: &Topology, seed: Seed) -> Self {
        let aging = SimSpan::from(config.letflow.aging);
        Self {
            timeout: config.letflow.flowlet_timeout.into(),
            flowlets: topology.switch_ids().map(|_| FlowTable::new(aging)).collect(),
            control: ecmp::Forwarding::new(config, topology, seed),
            rng: seed.child("flowlets", 0).rng(),
        }
    }
}

impl Forward for Forwarding {
    fn choose(&mut self, decision: &Decision<'_>) -> LinkId {
        if decision.is_control() {
            return self.control.choose(decision);
        }
        let &Decision { now, switch, hop, candidates, packets, .. } = decision;
        let (idle, link) = self.flowlets[switch].pass(Flow::of(hop, packets), now);
        match *link {
            Some(link) if idle <= self.timeout && candidates.contains(&link) => link,
            _ => *link.insert(candidates[self.rng.index(candidates.len())]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::super::bench::{Bench, micros};

    #[test]
    fn a_flowlet_keeps_its_link_and_a_gap_begins_another() {
        let mut bench = Bench::new(Kind::LetFlow);
        let mut now = 0;
        let first = bench.send(micros(now), 0, 16, 1);
        for gap in [1, 50, 100, 100] {
            now += gap;
            assert_eq!(bench.send(micros(now), 0, 16, 1), first, "at {now} us");
        }
        // Eight links: sixteen flowlets choose the same one with a probability of 1 in 8^16.
        let moved = (0..16).any(|_| {
            now += 101;
            bench.send(micros(now), 0, 16, 1) != first
        });
        assert!(moved);
    }

    #[test]
    fn new_flowlets_use_all_links_alike() {
        let mut bench = Bench::new(Kind::LetFlow);
        let mut used = [0; 8];
        for port in 0..8000 {
            used[bench.uplink(micros(0), 0, 16, port)] += 1;
        }
        assert!(used.iter().all(|count| (850..1150).contains(count)), "{used:?}");
    }

    #[test]
    fn a_flowlet_leaves_a_link_that_is_no_candidate() {
        let mut bench = Bench::new(Kind::LetFlow);
        let first = bench.send(micros(0), 0, 16, 1);
        bench.fail(first);
        assert_ne!(bench.send(micros(1), 0, 16, 1), first);
    }
}
