//! Which of the equal-cost links a switch sends a packet on.
//!
//! A forwarding model is one value for the whole fabric that keeps what state it needs for each
//! switch, by [`Decision::switch`]. It sees the packet, the candidates, the time and the ports'
//! queues; what a switch would write into a packet for the next one (CONGA's path metric) would
//! travel in the [`Parcel`](crate::packet::Parcel).

use serde::{Deserialize, Serialize};
use weft_topo::hash::{FabricHash, FiveTuple, HashAlgorithm};
use weft_topo::{LinkId, Topology};
use weft_units::Seed;

use crate::link::Link;
use crate::packet::{Hop, ParcelPool};
use crate::registry::named_kinds;
use crate::time::SimTime;

pub mod buffer;
mod ecmp;
mod least_queued;
mod random;

/// What a forwarding model decides from.
#[derive(Debug)]
pub struct Decision<'a> {
    /// When.
    pub now: SimTime,
    /// Index of the switch among the switches, from zero.
    pub switch: usize,
    /// The packet, and by which link it came.
    pub hop: Hop,
    /// The links that lead to its destination; at least one.
    pub candidates: &'a [LinkId],
    /// Every link of the fabric by [`LinkId`], for their queues.
    pub links: &'a [Link],
    /// Every packet's headers, for models that look into them.
    pub parcels: &'a ParcelPool,
}

/// Chooses the next link of each packet.
pub trait Forward {
    /// The chosen link: one of the candidates.
    fn choose(&mut self, decision: &Decision<'_>) -> LinkId;

    /// Whether it asks for [`Event::Timer`](crate::event::Event::Timer)s. Switches of models that do
    /// not, with ports that hold no queues, are served by a faster loop.
    fn keeps_timers(&self) -> bool {
        false
    }

    /// A timer of the switch has run out.
    fn timer(&mut self, _now: SimTime, _switch: usize, _token: u64) {}
}

/// How switches choose among equal-cost links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ForwardingConfig {
    /// The model.
    pub kind: Kind,
    /// The hash function, for models that hash.
    pub hash: HashAlgorithm,
    /// By how many bits more each tier turns its hash. Tiers that use the same bits of the same
    /// function polarise, whatever their seeds (Broadcom's RTAG7 has this offset for it).
    pub rotate_by_tier: u32,
}

impl Default for ForwardingConfig {
    fn default() -> Self {
        Self { kind: Kind::Ecmp, hash: HashAlgorithm::Crc32, rotate_by_tier: 8 }
    }
}

/// Declares every forwarding model once: module, name, one-line description.
macro_rules! forwarding_models {
    ($($kind:ident => $module:ident, $name:literal, $about:literal;)+) => {
        named_kinds! {
            /// The name of a forwarding model.
            Kind, "forwarding model", { $($kind, $name, $about;)+ }
        }

        impl Kind {
            /// The model for every switch of `topology`.
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
            /// One that is not in the table.
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

            fn keeps_timers(&self) -> bool {
                match self {
                    $(Self::$kind(model) => model.keeps_timers(),)+
                    Self::External(model) => model.keeps_timers(),
                }
            }

            fn timer(&mut self, now: SimTime, switch: usize, token: u64) {
                match self {
                    $(Self::$kind(model) => model.timer(now, switch, token),)+
                    Self::External(model) => model.timer(now, switch, token),
                }
            }
        }
    };
}

/// A forwarding model from elsewhere.
pub trait ExternalForward: Forward + std::fmt::Debug + Send {}
impl<T: Forward + std::fmt::Debug + Send> ExternalForward for T {}

forwarding_models! {
    Ecmp => ecmp, "ecmp", "a hash of the five-tuple, with a seed for each switch";
    Random => random, "random", "a random link for each packet, whatever its entropy";
    LeastQueued => least_queued, "least-queued", "the shortest queue of all candidates for each packet (ideal adaptive routing)";
}

/// The five-tuple a switch sees. Host `h` has address 10.0.0.0 + `h`, which is also how
/// [`crate::nic`] names it.
pub fn five_tuple(hop: Hop, parcels: &ParcelPool) -> FiveTuple {
    let parcel = parcels.get(hop.packet());
    crate::nic::five_tuple(parcel.source, hop.destination(), parcel.source_port)
}

/// The hash every forwarding model and the hosts' injection agree on.
pub fn fabric_hash(config: &ForwardingConfig) -> FabricHash {
    FabricHash::new(config.hash)
}
