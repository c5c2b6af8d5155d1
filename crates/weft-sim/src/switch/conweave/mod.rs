//! ConWeave: the first leaf moves flows off paths whose round trip is late, the last leaf hides that
//! from the hosts (Song et al. 2023).
//!
//! The first leaf names a stretch of a flow on one path an *epoch* and asks the last leaf to answer its
//! first packet ([`source`]). An answer in time begins the next epoch. Without one the flow moves:
//! the packet at hand is the TAIL of the old path, those that follow are marked as rerouted. The last
//! leaf holds rerouted packets until the TAIL has come, or should have, and then says so with CLEAR
//! ([`destination`]). Packets that come marked by ECN make it tell the first leaf, which then moves
//! nothing to that path for a while.
//!
//! Leaves choose the uplink; switches past them, where they have a choice, hash.

use serde::{Deserialize, Serialize};
use weft_topo::{LinkId, Topology};
use weft_units::{Duration, Seed};

use self::destination::Destination;
use self::source::Source;
use super::flow::Flow;
use super::{Decision, Fate, Forward, ForwardingConfig, Label, Labels, Order, Place, ecmp};
use crate::time::SimTime;

mod destination;
mod source;

/// ConWeave's parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How much later than in an empty network an answer may come before the flow moves.
    pub reply_slack: Duration,
    /// How long nothing moves to a path that was congested.
    pub path_pause: Duration,
    /// Silence after which a flow begins a new epoch wherever it likes.
    pub expiry: Duration,
    /// How much later than expected the TAIL may come before held packets are let go.
    pub flush_slack: Duration,
    /// When the TAIL is expected if nothing of its epoch was seen.
    pub default_wait: Duration,
    /// Silence after which a switch forgets a flow.
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
    pub(super) fn check(&self) -> Result<(), String> {
        super::not_zero("expiry", self.expiry)?;
        if self.aging < self.expiry {
            return Err(format!(
                "aging is {}, expected at least the expiry, {}",
                self.aging, self.expiry
            ));
        }
        Ok(())
    }
}

/// What leaves write on packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// On data, for the last leaf.
    Data(Header),
    /// To the first leaf: what it asked about arrived.
    Reply {
        /// The epoch it asked in.
        epoch: SimTime,
        /// It was the TAIL: this is CLEAR.
        is_clear: bool,
    },
    /// To the first leaf: the way by this uplink is congested.
    Notify {
        /// The uplink.
        uplink: LinkId,
    },
}

/// What the first leaf writes on data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The way it takes.
    uplink: LinkId,
    /// The epoch, named by when it began. A flow that was forgotten is thus in a later one than ever
    /// before.
    epoch: SimTime,
    /// Whether it left after the TAIL, on the new path.
    is_rerouted: bool,
    mark: Mark,
    /// When it left the first leaf.
    sent_at: SimTime,
    /// When the TAIL did, if it has.
    tail_at: SimTime,
}

/// What else a data packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    None,
    /// `RTT_REQUEST`: the first of its epoch.
    Request,
    /// `TAIL`: the last of its epoch on the old path.
    Tail,
}

/// What every switch keeps.
#[derive(Debug)]
pub struct Forwarding {
    /// By switch; only leaves use them.
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
        orders: &mut Vec<Order>,
    ) -> Fate {
        let (hop, switch) = (decision.hop, decision.switch);
        match labels.get(hop.packet()) {
            Label::ConWeave(Tag::Data(header)) => {
                self.destinations[switch].arrive(decision, &header, orders);
                Fate::Hold
            }
            Label::ConWeave(tag) => {
                self.sources[switch].hear(decision, tag);
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

    fn attends(&self) -> bool {
        true
    }

    fn attend(
        &mut self,
        decision: &Decision<'_>,
        labels: &mut Labels,
        orders: &mut Vec<Order>,
    ) -> Fate {
        let packet = decision.hop.packet();
        match decision.place() {
            Place::SourceLeaf if !decision.is_control() => {
                let header = self.sources[decision.switch].send(decision);
                labels.set(packet, Label::ConWeave(Tag::Data(header)));
                Fate::Forward(header.uplink)
            }
            Place::DestinationLeaf => self.arrive(decision, labels, orders),
            Place::SourceLeaf => {
                labels.set(packet, Label::Blank);
                Fate::Forward(self.hash.choose(decision))
            }
            Place::Between | Place::OnlyLeaf => Fate::Forward(self.hash.choose(decision)),
        }
    }

    fn timer(&mut self, now: SimTime, switch: usize, token: u64, orders: &mut Vec<Order>) {
        self.destinations[switch].timer(now, Flow::from_token(token), orders);
    }
}

#[cfg(test)]
mod tests;
