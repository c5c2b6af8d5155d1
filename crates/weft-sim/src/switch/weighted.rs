//! Weighted ECMP: the hash of the five-tuple selects an entry of a table that holds each link as often as its weight
//! (WCMP, Zhou et al. 2014).
//!
//! Weights that are not given follow from the network: a link's weight is the capacity from it to the destination's
//! leaf. So a spine that lost half of its cables to that leaf gets half the flows once the routes are updated.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::{LinkId, Topology};
use weft_units::Seed;

use super::{Decision, Forward, ForwardingConfig, ParameterError, ecmp};

/// The weights.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Weights of a switch's uplinks in port order, repeated if there are more uplinks. If empty, the weights are the
    /// downstream capacities.
    pub weights: Vec<u32>,
}

impl Config {
    pub(super) fn check(&self) -> Result<(), ParameterError> {
        self.weights.iter().try_for_each(|&weight| super::at_least_one("weights", weight.into()))
    }
}

/// Maximum number of entries of a table; chips have a few thousand for all tables.
const MAX_ENTRIES: u64 = 1024;

/// The tables in use.
#[derive(Debug)]
pub struct Forwarding {
    weights: Vec<u32>,
    hash: ecmp::Forwarding,
    /// Tables by switch and group of destinations: for each candidate, the end of its entries.
    tables: Vec<BTreeMap<u32, Vec<usize>>>,
}

impl Forwarding {
    pub(super) fn new(config: &ForwardingConfig, topology: &Topology, seed: Seed) -> Self {
        Self {
            weights: config.weighted.weights.clone(),
            hash: ecmp::Forwarding::new(config, topology, seed),
            tables: topology.switch_ids().map(|_| BTreeMap::new()).collect(),
        }
    }

    /// Returns the weight of a candidate: the configured one, or the capacity from it on.
    fn weight(&self, link: LinkId, decision: &Decision<'_>) -> u64 {
        let topology = decision.topology;
        let ends = topology.link(link);
        let is_up = |link: LinkId| topology.tier(topology.link(link).to) > topology.tier(ends.from);
        if self.weights.is_empty() || !is_up(link) {
            return capacity(link, decision.candidates, decision);
        }
        let uplinks = topology.ports(ends.from).iter().filter(|&&port| is_up(port));
        let place = uplinks.take_while(|&&port| port != link).count();
        self.weights[place % self.weights.len()].into()
    }
}

impl Forward for Forwarding {
    fn choose(&mut self, decision: &Decision<'_>) -> LinkId {
        let candidates = decision.candidates;
        let group = decision.routes.group(decision.hop.destination());
        if decision.leads_to_host() {
            // These are a host's own cables.
            return self.hash.choose(decision);
        }
        let known = self.tables[decision.switch].get(&group);
        let ends = match known {
            Some(ends) => ends,
            None => {
                let weights = candidates.iter().map(|&link| self.weight(link, decision));
                let ends = entries(weights.collect());
                self.tables[decision.switch].entry(group).or_insert(ends)
            }
        };
        let entry = self.hash.entry(decision, ends.last().copied().unwrap_or(0));
        candidates[ends.partition_point(|&end| end <= entry)]
    }

    fn rerouted(&mut self) {
        self.tables.iter_mut().for_each(BTreeMap::clear);
    }
}

/// Returns the capacity in bits per second from `link`, one of `links`, to the destination's leaf. Links to the same
/// switch share that switch's capacity.
fn capacity(link: LinkId, links: &[LinkId], decision: &Decision<'_>) -> u64 {
    let Decision { topology, routes, hop, .. } = decision;
    let ends = topology.link(link);
    let next = routes.next_links(ends.to, hop.destination());
    let leads_to_host = |link: &LinkId| topology.is_host(topology.link(*link).to);
    if next.first().is_some_and(leads_to_host) {
        return ends.rate.as_bps();
    }
    let onward = next.iter().map(|&link| capacity(link, next, decision));
    let parallel = links.iter().filter(|&&link| topology.link(link).to == ends.to).count() as u64;
    ends.rate.as_bps().min(onward.fold(0, u64::saturating_add) / parallel)
}

/// Returns, for each weight, the end of its entries in the smallest table that represents the weights.
fn entries(weights: Vec<u64>) -> Vec<usize> {
    let divisor = weights.iter().copied().fold(0, greatest_common_divisor).max(1);
    let sum: u64 = weights.iter().map(|weight| weight / divisor).sum();
    let entries = |weight: u64| match sum {
        0..=MAX_ENTRIES => weight / divisor,
        _ => weight / divisor * MAX_ENTRIES / sum,
    };
    let end = |end: &mut usize, weight| {
        *end += usize::try_from(entries(weight).max(1)).expect("at most the table's length");
        Some(*end)
    };
    weights.into_iter().scan(0, end).collect()
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use weft_topo::NodeId;
    use weft_topo::build::LeafSpine;
    use weft_units::BitRate;

    use super::super::Kind;
    use super::super::bench::{Bench, micros};
    use super::*;

    fn shares(bench: &mut Bench) -> Vec<u32> {
        let mut used = vec![0; bench.candidates(0, 16).len()];
        for port in 0..42_000 {
            used[bench.uplink(micros(0), 0, 16, port)] += 1;
        }
        used
    }

    fn near(got: &[u32], want: &[u32]) {
        let close = |(&got, &want): (&u32, &u32)| got.abs_diff(want) * 10 < want.max(10) * 2;
        assert!(got.iter().zip(want).all(close), "{got:?}, expected about {want:?}");
    }

    /// The testbed of Hopper's section 4.2: four spines at 10 Gb/s, two at 1 Gb/s.
    fn testbed() -> Topology {
        let rates = [10, 10, 10, 10, 1, 1].map(|rate| BitRate::gbps(rate).unwrap());
        let shape = LeafSpine {
            leaves: 2,
            spines: 6,
            uplink_rates: rates.to_vec(),
            ..LeafSpine::default()
        };
        shape.build().unwrap()
    }

    #[test]
    fn flows_are_spread_by_rate() {
        let mut bench = Bench::on(testbed(), Kind::Weighted, |_| {});
        near(&shares(&mut bench), &[10_000, 10_000, 10_000, 10_000, 1_000, 1_000]);
    }

    #[test]
    fn configured_weights_replace_rates_and_repeat() {
        let mut bench =
            Bench::on(testbed(), Kind::Weighted, |config| config.weighted.weights = vec![2, 1, 4]);
        near(&shares(&mut bench), &[6_000, 3_000, 12_000, 6_000, 3_000, 12_000]);
    }

    #[test]
    fn a_spine_that_lost_one_of_two_cables_to_the_destination_gets_half() {
        let shape = LeafSpine { leaves: 2, spines: 3, parallel_links: 2, ..LeafSpine::default() };
        let mut bench = Bench::on(shape.build().unwrap(), Kind::Weighted, |_| {});
        let leaf = bench.topology.hosts();
        let first_spine = leaf + 2;
        let down = bench.topology.ports(NodeId(first_spine))[2];
        assert_eq!(bench.topology.link(down).to, NodeId(leaf + 1));
        bench.fail(down);
        near(&shares(&mut bench), &[4_200, 4_200, 8_400, 8_400, 8_400, 8_400]);
        let up = bench.candidates(0, 16)[0];
        assert_eq!(bench.topology.link(up).to, NodeId(first_spine));
        bench.fail(up);
        near(&shares(&mut bench), &[8_400; 5]);
    }

    #[test]
    fn tables_are_as_short_as_weights_allow_and_never_too_long() {
        assert_eq!(entries(vec![10_000, 10_000, 1_000]), [10, 20, 21]);
        assert_eq!(entries(vec![0, 0]), [1, 2]);
        let long = entries(vec![1_000_003, 2_000_003, 7]);
        assert_eq!(long, [341, 1023, 1024]);
    }
}
