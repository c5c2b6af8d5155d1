//! ConWeave: the first leaf moves flows off paths with a late round trip, and the last leaf hides the reordering from
//! the hosts (Song et al. 2023).
//!
//! A part of a flow on one path is an *epoch*. The first leaf requests a reply of the last leaf to the first packet of
//! an epoch ([`source`]). A reply in time begins the next epoch. Without one the flow moves: the current packet is the
//! TAIL of the old path, and those that follow are marked as rerouted. The last leaf holds rerouted packets until the
//! TAIL has arrived or is overdue, and then sends CLEAR ([`destination`]). ECN-marked packets make it notify the first
//! leaf, which then moves no flow to that path for a while.
//!
//! Leaves choose the uplink; other switches, if they have a choice, hash.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::{LinkId, Topology};
use weft_units::{Duration, Seed};

use self::destination::Destination;
use self::source::Source;
use super::flow::Flow;
use super::{
    Command, Decision, Fate, Forward, ForwardingConfig, Label, Labels, ParameterError, Place, ecmp,
};
use crate::time::SimTime;

mod destination;
mod source;
mod tag;

pub(super) use tag::Tag;

/// ConWeave's parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Time that a reply may exceed the idle network's round trip before the flow moves.
    pub reply_slack: Duration,
    /// Time for which no flow moves to a path that was congested.
    pub path_pause: Duration,
    /// Idle time after which a flow begins a new epoch on any path.
    pub expiry: Duration,
    /// Time that the TAIL may exceed its expected arrival before held packets are released.
    pub flush_slack: Duration,
    /// Expected wait for the TAIL if no packet of its epoch arrived.
    pub default_wait: Duration,
    /// Idle time after which a switch forgets a flow.
    pub aging: Duration,
}

impl Default for Config {
    /// The values of ConWeave's leaf–spine simulations.
    fn default() -> Self {
        Self {
            reply_slack: Duration::from_micros(4),
            path_pause: Duration::from_micros(16),
            expiry: Duration::from_micros(300),
            flush_slack: Duration::from_micros(16),
            default_wait: Duration::from_micros(200),
            aging: Duration::from_millis(2),
        }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), ParameterError> {
        super::not_zero("expiry", self.expiry)?;
        if self.aging < self.expiry {
            let Self { aging, expiry, .. } = *self;
            return Err(ParameterError::AgingBelowExpiry { aging, expiry });
        }
        Ok(())
    }
}

/// The state of all switches.
#[derive(Debug)]
pub struct Forwarding {
    /// Sources by switch; only leaves use them.
    sources: Vec<Source>,
    destinations: Vec<Destination>,
    hash: ecmp::Forwarding,
}

impl Forwarding {
    pub(super) fn new(config: &ForwardingConfig, topology: &Topology, seed: Seed) -> Self {
        let each = || (0..).zip(topology.switch_ids()).map(|(index, _)| index);
        let source = |index| Source::new(&config.conweave, seed.child("paths", index));
        Self {
            sources: each().map(source).collect(),
            destinations: each().map(|_: u64| Destination::new(&config.conweave)).collect(),
            hash: ecmp::Forwarding::new(config, topology, seed),
        }
    }

    fn arrive(
        &mut self,
        decision: &Decision<'_>,
        labels: &Labels,
        commands: &mut Vec<Command>,
    ) -> Fate {
        let (hop, switch) = (decision.hop, decision.switch);
        match labels.get(hop.packet()) {
            Label::ConWeave(Tag::Data(header)) => {
                self.destinations[switch].arrive(decision, &header, commands);
                Fate::Hold
            }
            Label::ConWeave(tag) => {
                self.sources[switch].on_label(decision, tag);
                Fate::Take
            }
            _ => Fate::Forward(self.hash.choose(decision)),
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
        commands: &mut Vec<Command>,
    ) -> Fate {
        let packet = decision.hop.packet();
        match decision.place() {
            Place::SourceLeaf if !decision.is_control() => {
                let header = self.sources[decision.switch].send(decision);
                labels.set(packet, Label::ConWeave(Tag::Data(header)));
                Fate::Forward(header.uplink)
            }
            Place::DestinationLeaf => self.arrive(decision, labels, commands),
            Place::SourceLeaf => {
                labels.set(packet, Label::Blank);
                Fate::Forward(self.hash.choose(decision))
            }
            Place::Between | Place::OnlyLeaf => Fate::Forward(self.hash.choose(decision)),
        }
    }

    fn timer(&mut self, now: SimTime, switch: usize, token: u64, commands: &mut Vec<Command>) {
        self.destinations[switch].timer(now, Flow::from_token(token), commands);
    }
}

#[cfg(test)]
mod tests;
