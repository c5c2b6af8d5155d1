//! CONGA: each flowlet takes the path whose busiest link is least busy (Alizadeh et al. 2014).
//!
//! Every switch estimates the utilisation of its links ([`dre`]). A packet carries the uplink that its first leaf
//! chose and the largest estimate on its path; the last leaf stores both and returns them to the first leaf on packets
//! of the other direction ([`tables`]). A new flowlet takes the uplink with the smallest maximum of its own estimate
//! and the other leaf's feedback. Other switches, if they have a choice, hash.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::{LinkId, Topology};
use weft_units::{Duration, Rng, Seed};

use self::dre::Estimators;
use self::tables::Tables;
use self::tag::Metric;
use super::flow::{Flow, FlowTable};
use super::{
    Command, Decision, Fate, Forward, ForwardingConfig, Label, Labels, ParameterError, Place, ecmp,
};
use crate::time::SimSpan;

mod dre;
mod tables;
mod tag;

pub(super) use tag::Tag;

/// CONGA's parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Idle time that ends a flowlet.
    pub flowlet_timeout: Duration,
    /// Interval between discounts of the estimators.
    pub dre_period: Duration,
    /// The share that one discount removes.
    pub dre_alpha: f64,
    /// Bits of an estimate.
    pub bits: u8,
    /// Time for which a leaf uses a received or measured metric, and remembers an idle flow.
    pub aging: Duration,
}

impl Default for Config {
    /// The values of ConWeave's simulations.
    fn default() -> Self {
        Self {
            flowlet_timeout: Duration::from_micros(100),
            dre_period: Duration::from_micros(50),
            dre_alpha: 0.2,
            bits: 3,
            aging: Duration::from_micros(500),
        }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), ParameterError> {
        super::not_zero("flowlet_timeout", self.flowlet_timeout)?;
        super::not_zero("dre_period", self.dre_period)?;
        super::not_zero("aging", self.aging)?;
        if !(self.dre_alpha > 0.0 && self.dre_alpha <= 1.0) {
            return Err(ParameterError::DreAlpha(self.dre_alpha));
        }
        if !(1..=8).contains(&self.bits) {
            return Err(ParameterError::Bits(self.bits));
        }
        Ok(())
    }
}

/// The state of all switches.
#[derive(Debug)]
pub struct Forwarding {
    flowlet_timeout: SimSpan,
    aging: SimSpan,
    estimators: Estimators,
    /// Tables by switch; only leaves use them.
    tables: Vec<Tables>,
    flowlets: Vec<FlowTable<Option<LinkId>>>,
    /// The port number by link.
    ports: Vec<u16>,
    hash: ecmp::Forwarding,
    rng: Rng,
}

impl Forwarding {
    pub(super) fn new(config: &ForwardingConfig, topology: &Topology, seed: Seed) -> Self {
        let aging = SimSpan::from(config.conga.aging);
        let mut ports = vec![0; topology.links() as usize];
        for switch in topology.switch_ids() {
            (0..).zip(topology.ports(switch)).for_each(|(port, link)| ports[link.index()] = port);
        }
        Self {
            flowlet_timeout: config.conga.flowlet_timeout.into(),
            aging,
            estimators: Estimators::new(&config.conga, topology),
            tables: topology.switch_ids().map(|_| Tables::default()).collect(),
            flowlets: topology.switch_ids().map(|_| FlowTable::new(aging)).collect(),
            ports,
            hash: ecmp::Forwarding::new(config, topology, seed),
            rng: seed.child("equal paths", 0).rng(),
        }
    }

    /// Handles a packet at its first leaf.
    fn on_source_leaf(&mut self, decision: &Decision<'_>, labels: &mut Labels) -> LinkId {
        let &Decision { now, switch, hop, .. } = decision;
        let leaf = decision.leaf_of(hop.destination());
        let link = match decision.is_control() {
            true => self.hash.choose(decision),
            false => self.flowlet(decision, leaf),
        };
        let congestion = self.estimators.count(link, hop.size(), now);
        let met = Metric { uplink: self.ports[link.index()], congestion };
        let tag = Tag {
            leaf: u32::try_from(switch).expect("few switches"),
            met: (!decision.is_control()).then_some(met),
            feedback: self.tables[switch].poll_feedback(leaf, now, self.aging),
        };
        labels.set(hop.packet(), Label::Conga(tag));
        link
    }

    /// Returns the uplink of the packet's flowlet.
    fn flowlet(&mut self, decision: &Decision<'_>, leaf: u32) -> LinkId {
        let &Decision { now, switch, hop, candidates, packets, .. } = decision;
        let (idle, known) = self.flowlets[switch].pass(Flow::of(hop, packets), now);
        let old = known.filter(|link| candidates.contains(link));
        if let Some(link) = old
            && idle <= self.flowlet_timeout
        {
            return link;
        }
        let mut congestion = |link: LinkId| {
            let uplink = self.ports[link.index()];
            let remote = self.tables[switch].congestion_to(leaf, uplink, now, self.aging);
            remote.max(self.estimators.grade(link, now))
        };
        let congestion: Vec<_> = candidates.iter().map(|&link| (congestion(link), link)).collect();
        let least = congestion.iter().map(|&(congestion, _)| congestion).min();
        let best = congestion.iter().filter(|&&(congestion, _)| Some(congestion) == least);
        let best: Vec<_> = best.map(|&(_, link)| link).collect();
        // A flow moves only if another uplink is better.
        let old = old.filter(|link| best.contains(link));
        let link = old.unwrap_or_else(|| best[self.rng.index(best.len())]);
        *known = Some(link);
        link
    }

    /// Handles a packet at a switch between leaves.
    fn on_transit(&mut self, decision: &Decision<'_>, labels: &mut Labels) -> LinkId {
        let hop = decision.hop;
        let link = self.hash.choose(decision);
        let congestion = self.estimators.count(link, hop.size(), decision.now);
        if let Label::Conga(mut tag) = labels.get(hop.packet()) {
            if let Some(met) = &mut tag.met {
                met.congestion = met.congestion.max(congestion);
            }
            labels.set(hop.packet(), Label::Conga(tag));
        }
        link
    }

    /// Handles a packet at its last leaf.
    fn on_destination_leaf(&mut self, decision: &Decision<'_>, labels: &Labels) {
        let Label::Conga(tag) = labels.get(decision.hop.packet()) else { return };
        let tables = &mut self.tables[decision.switch];
        if let Some(met) = tag.met {
            tables.on_metric(tag.leaf, met, decision.now);
        }
        if let Some(feedback) = tag.feedback {
            tables.on_feedback(tag.leaf, feedback, decision.now);
        }
    }
}

impl Forward for Forwarding {
    fn choose(&mut self, decision: &Decision<'_>) -> LinkId {
        self.hash.choose(decision)
    }

    fn services(&self) -> bool {
        true
    }

    fn service(
        &mut self,
        decision: &Decision<'_>,
        labels: &mut Labels,
        _: &mut Vec<Command>,
    ) -> Fate {
        Fate::Forward(match decision.place() {
            Place::SourceLeaf => self.on_source_leaf(decision, labels),
            Place::Between => self.on_transit(decision, labels),
            Place::DestinationLeaf => {
                self.on_destination_leaf(decision, labels);
                self.hash.choose(decision)
            }
            Place::OnlyLeaf => self.hash.choose(decision),
        })
    }
}

#[cfg(test)]
mod tests;
