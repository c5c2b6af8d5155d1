//! The choice of one of the equal-cost links for a packet at a switch.
//!
//! A forwarding model is one value for the whole fabric that keeps its state for each switch, by [`Decision::switch`].
//! It reads the packet, the candidates, the time and the ports' queues. Most models only [choose](Forward::choose).
//! Models that [service](Forward::service) packets handle each packet at each switch: they may write a [`Label`] on
//! it for the next switch, hold it, emit packets of their own and set timers. A model that only chooses has none of
//! these costs.
//!
//! Balancers steer data. Control packets (ACKs, set-up, packets between switches) follow the flow's hash, as in the
//! public simulators: [`Decision::is_control`]. `random` and `least-queued` are older than the rule and steer all
//! packets.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::hash::{FabricHash, FiveTuple, HashAlgorithm};
use weft_topo::{LinkId, NodeId, NodeName, Routes, Topology};
use weft_units::{Duration, Rng, Seed};

use crate::link::{Link, LinkClass};
use crate::packet::{Class, Hop, PacketPool};
use crate::port::Port;
use crate::time::SimTime;

mod adaptive;
#[cfg(test)]
mod bench;
pub mod buffer;
mod conga;
mod conweave;
mod drill;
mod ecmp;
pub mod flow;
mod label;
mod least_queued;
mod letflow;
mod random;
mod weighted;

pub use adaptive::Config as AdaptiveConfig;
pub use conga::Config as CongaConfig;
pub use conweave::Config as ConWeaveConfig;
pub use drill::Config as DrillConfig;
pub use label::{Label, Labels};
pub use letflow::Config as LetFlowConfig;
pub use weighted::Config as WeightedConfig;

/// The input of a forwarding decision.
#[derive(Debug)]
pub struct Decision<'a> {
    /// The current time.
    pub now: SimTime,
    /// Index of the switch among the switches, from zero.
    pub switch: usize,
    /// The packet, with the link on which it arrived.
    pub hop: Hop,
    /// The links that lead to its destination; at least one.
    pub candidates: &'a [LinkId],
    /// Every link of the fabric by [`LinkId`], for their queues.
    pub links: &'a [Link],
    /// The classes of links.
    pub classes: &'a [LinkClass],
    /// Every port that holds a queue, by the [`LinkId`] it sends on; empty where ports hold none.
    pub ports: &'a [Port],
    /// Every packet's headers, for models that read them.
    pub packets: &'a PacketPool,
    /// The network's nodes and links.
    pub topology: &'a Topology,
    /// The current routes.
    pub routes: &'a Routes,
}

/// A packet's position on its path, for models in which leaves do more than other switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At the first switch, which is not the last.
    SourceLeaf,
    /// Between the first and the last.
    Between,
    /// At the last switch, which was not the first.
    DestinationLeaf,
    /// At the only one.
    OnlyLeaf,
}

impl Decision<'_> {
    /// Returns `true` if the packet is a control packet, which balancers do not steer.
    pub const fn is_control(&self) -> bool {
        matches!(self.hop.class(), Class::Control)
    }

    /// Returns the bytes that wait at one of the switch's ports.
    pub fn queued(&self, link: LinkId) -> u64 {
        let link = &self.links[link.index()];
        self.classes[usize::from(link.class)].pace.bytes(link.backlog(self.now))
    }

    /// Returns the bytes that wait behind the packet on the wire if ports hold queues; otherwise the same as
    /// [`Self::queued`].
    pub fn waiting(&self, link: LinkId) -> u64 {
        let port = self.ports.get(link.index());
        port.map_or_else(|| self.queued(link), Port::queued_bytes)
    }

    /// Returns `true` if the candidates are cables to the destination itself.
    pub fn leads_to_host(&self) -> bool {
        self.topology.is_host(NodeId(self.links[self.candidates[0].index()].to))
    }

    /// Returns the packet's position on its path.
    pub fn place(&self) -> Place {
        match (self.hop.switches() == 0, self.leads_to_host()) {
            (true, false) => Place::SourceLeaf,
            (false, false) => Place::Between,
            (false, true) => Place::DestinationLeaf,
            (true, true) => Place::OnlyLeaf,
        }
    }

    /// Returns the leaf of `host` in the plane of this switch, as an index among switches.
    pub fn leaf_of(&self, host: NodeId) -> u32 {
        let Decision { topology, hop, .. } = self;
        let mut leaves = topology.ports(host).iter().map(|&port| topology.link(port).to);
        let first = leaves.clone().next().expect("a host has a port");
        let plane = topology.plane(hop.node());
        leaves.find(|&leaf| topology.plane(leaf) == plane).unwrap_or(first).0 - topology.hosts()
    }
}

/// The fate of a packet that a model serviced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet is forwarded on this link, one of the candidates.
    Forward(LinkId),
    /// The model holds the packet and returns it in an [`Command::Send`], possibly one of this call.
    Hold,
    /// The packet was addressed to the switch.
    Take,
}

/// An action that a model orders from its switch, in order, after the current packet or timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Forwards a packet that was held.
    Send(Hop),
    /// Sends a new control packet.
    Emit {
        /// The host that is named as its source.
        source: NodeId,
        /// The host that is named as its destination; that host's leaf receives it.
        destination: NodeId,
        /// UDP source port.
        port: u16,
        /// Its label.
        label: Label,
    },
    /// Calls [`Forward::timer`].
    Wake {
        /// The time; not before now.
        at: SimTime,
        /// The argument of the call.
        token: u64,
    },
}

/// A forwarding model: chooses the next link of each packet.
pub trait Forward {
    /// Returns the chosen link, one of the candidates.
    fn choose(&mut self, decision: &Decision<'_>) -> LinkId;

    /// Returns `true` if every packet at every switch must pass through [`Self::service`]. Switches of other models,
    /// with ports that hold no queues, run in a faster loop.
    fn services(&self) -> bool {
        false
    }

    /// Handles a packet at a switch.
    fn service(&mut self, decision: &Decision<'_>, _: &mut Labels, _: &mut Vec<Command>) -> Fate {
        Fate::Forward(self.choose(decision))
    }

    /// Handles the expiry of a switch's timer.
    fn timer(&mut self, _now: SimTime, _switch: usize, _token: u64, _: &mut Vec<Command>) {}

    /// Handles a change of the routes.
    fn rerouted(&mut self) {}
}

/// Configuration of the choice among equal-cost links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ForwardingConfig {
    /// The model.
    pub kind: Kind,
    /// The hash function, for models that hash.
    pub hash: HashAlgorithm,
    /// Number of bits by which each tier rotates its hash beyond the previous tier. Tiers that use the same bits of
    /// the same function polarise, whatever their seeds (Broadcom's RTAG7 has this offset to prevent it).
    pub rotate_by_tier: u32,
    /// Parameters of `weighted-ecmp`.
    pub weighted: WeightedConfig,
    /// Parameters of `letflow`.
    pub letflow: LetFlowConfig,
    /// Parameters of `conga`.
    pub conga: CongaConfig,
    /// Parameters of `drill`.
    pub drill: DrillConfig,
    /// Parameters of `adaptive`.
    pub adaptive: AdaptiveConfig,
    /// Parameters of `conweave`.
    pub conweave: ConWeaveConfig,
}

impl Default for ForwardingConfig {
    fn default() -> Self {
        Self {
            kind: Kind::Ecmp,
            hash: HashAlgorithm::Crc32,
            rotate_by_tier: 8,
            weighted: WeightedConfig::default(),
            letflow: LetFlowConfig::default(),
            conga: CongaConfig::default(),
            drill: DrillConfig::default(),
            adaptive: AdaptiveConfig::default(),
            conweave: ConWeaveConfig::default(),
        }
    }
}

impl ForwardingConfig {
    /// Checks that every parameter is within its range.
    ///
    /// # Errors
    /// The group of parameters that is wrong, and the error in it.
    pub fn check(&self) -> Result<(), (&'static str, ParameterError)> {
        let groups = [
            ("weighted", self.weighted.check()),
            ("letflow", self.letflow.check()),
            ("conga", self.conga.check()),
            ("drill", self.drill.check()),
            ("adaptive", self.adaptive.check()),
            ("conweave", self.conweave.check()),
        ];
        groups.into_iter().try_for_each(|(group, found)| found.map_err(|error| (group, error)))
    }

    /// Checks that the model works in this network: `ConWeave` holds, at one leaf, packets that took another path, so
    /// all paths to a host must end at one leaf.
    ///
    /// # Errors
    /// A host is reached through several leaves.
    pub fn check_network(&self, topology: &Topology) -> Result<(), SeveralLeavesError> {
        if self.kind != Kind::ConWeave {
            return Ok(());
        }
        let has_several = |&host: &NodeId| {
            let leaves = topology.ports(host).iter().map(|&port| topology.link(port).to);
            let leaves: BTreeSet<_> = leaves.filter(|&to| !topology.is_host(to)).collect();
            let planes: BTreeSet<_> = leaves.iter().map(|&leaf| topology.plane(leaf)).collect();
            planes.len() < leaves.len()
        };
        topology
            .host_ids()
            .find(has_several)
            .map_or(Ok(()), |host| Err(SeveralLeavesError { host: topology.name(host) }))
    }
}

/// The error for a parameter of a forwarding model that is out of its range. The message begins with the key.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// A duration is zero.
    #[error("{0} is 0, expected more")]
    ZeroDuration(&'static str),
    /// A number is zero.
    #[error("{0} is 0, expected at least 1")]
    Zero(&'static str),
    /// The share that a discount removes is not above 0 and at most 1.
    #[error("dre_alpha is {0}, expected above 0 and at most 1")]
    DreAlpha(f64),
    /// The congestion metric has too few or too many bits.
    #[error("bits is {0}, expected 1 to 8")]
    Bits(u8),
    /// Flows are forgotten before their paths expire.
    #[error("aging is {aging}, expected at least the expiry, {expiry}")]
    AgingBelowExpiry {
        /// The idle time after which a flow is forgotten.
        aging: Duration,
        /// The time after which a path is chosen again.
        expiry: Duration,
    },
}

/// The error for a host that is reached through several leaves, which `ConWeave` does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("conweave needs all ways to a host to end at one leaf, {host} is behind several")]
pub struct SeveralLeavesError {
    /// The name of the host.
    pub host: NodeName,
}

/// Checks that a duration is not zero.
fn not_zero(key: &'static str, value: Duration) -> Result<(), ParameterError> {
    if value == Duration::ZERO { Err(ParameterError::ZeroDuration(key)) } else { Ok(()) }
}

/// Checks that a number is not zero.
fn at_least_one(key: &'static str, value: u64) -> Result<(), ParameterError> {
    if value == 0 { Err(ParameterError::Zero(key)) } else { Ok(()) }
}

/// Returns the candidate with the least cost, drawn at random from equal ones.
fn least<C: Ord>(candidates: &[LinkId], cost: impl Fn(LinkId) -> C, rng: &mut Rng) -> LinkId {
    let least = candidates.iter().map(|&link| cost(link)).min().expect("there are candidates");
    let best = || candidates.iter().filter(|&&link| cost(link) == least);
    *best().nth(rng.index(best().count())).expect("below their number")
}

/// Declares every forwarding model once: module, name, one-line description.
macro_rules! forwarding_models {
    ($($kind:ident => $module:ident, $name:literal, $about:literal;)+) => {
        weft_units::registry! {
            /// The name of a forwarding model.
            #[non_exhaustive]
            pub enum Kind: "forwarding model" { $($kind => $name, $about;)+ }
        }

        impl Kind {
            /// Returns the model for every switch of `topology`.
            pub fn build(self, config: &ForwardingConfig, topology: &Topology, seed: Seed) -> Forwarding {
                match self {
                    $(Self::$kind => {
                        Forwarding::$kind($module::Forwarding::new(config, topology, seed))
                    })+
                }
            }
        }

        /// A forwarding model by value.
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum Forwarding {
            $(#[doc = $about] $kind($module::Forwarding),)+
            /// A model that is not in the table.
            External(Box<dyn ExternalForward>),
        }

        impl Forward for Forwarding {
            #[inline(always)] // In the simulator's loop; its other caller is slower anyway.
            fn choose(&mut self, decision: &Decision<'_>) -> LinkId {
                match self {
                    $(Self::$kind(model) => model.choose(decision),)+
                    Self::External(model) => model.choose(decision),
                }
            }

            fn services(&self) -> bool {
                match self {
                    $(Self::$kind(model) => model.services(),)+
                    Self::External(model) => model.services(),
                }
            }

            fn service(
                &mut self,
                decision: &Decision<'_>,
                labels: &mut Labels,
                commands: &mut Vec<Command>,
            ) -> Fate {
                match self {
                    $(Self::$kind(model) => model.service(decision, labels, commands),)+
                    Self::External(model) => model.service(decision, labels, commands),
                }
            }

            fn timer(&mut self, now: SimTime, switch: usize, token: u64, commands: &mut Vec<Command>) {
                match self {
                    $(Self::$kind(model) => model.timer(now, switch, token, commands),)+
                    Self::External(model) => model.timer(now, switch, token, commands),
                }
            }

            fn rerouted(&mut self) {
                match self {
                    $(Self::$kind(model) => model.rerouted(),)+
                    Self::External(model) => model.rerouted(),
                }
            }
        }
    };
}

/// A forwarding model that another crate defines.
pub trait ExternalForward: Forward + std::fmt::Debug + Send {}
impl<T: Forward + std::fmt::Debug + Send> ExternalForward for T {}

forwarding_models! {
    Ecmp => ecmp, "ecmp", "a hash of the five-tuple, with a seed for each switch";
    Random => random, "random", "a random link for each packet, whatever its entropy";
    LeastQueued => least_queued, "least-queued", "the shortest queue of all candidates for each packet (ideal adaptive routing)";
    Adaptive => adaptive, "adaptive", "a random link of those with the best grade of queue for each packet, as switch chips do it";
    Weighted => weighted, "weighted-ecmp", "the hash, over a table in which links stand by capacity downstream (WCMP)";
    LetFlow => letflow, "letflow", "a random link for each flowlet (Vanini 2017)";
    Conga => conga, "conga", "the least congested path for each flowlet, by feedback between leaves (Alizadeh 2014)";
    Drill => drill, "drill", "the shortest queue of two random links and the last best one for each packet (Ghorbani 2017)";
    ConWeave => conweave, "conweave", "flows leave paths whose round trip is late; the last leaf puts them in order (Song 2023)";
}

/// Returns the five-tuple that a switch reads. Host `h` has address 10.0.0.0 + `h`, as in [`crate::nic`].
pub fn five_tuple(hop: Hop, packets: &PacketPool) -> FiveTuple {
    let slot = packets.get(hop.packet());
    crate::nic::five_tuple(slot.source, hop.destination(), slot.source_port)
}

/// Returns the hash that every forwarding model and the hosts' injection use.
pub fn fabric_hash(config: &ForwardingConfig) -> FabricHash {
    FabricHash::new(config.hash)
}
