//! Source ports ("entropies") for all flows at once, so that they share links as little as they can:
//! TCCL's deterministic queue pairs (Astral, sections 2.2 and 3.4).
//!
//! How many flows the busiest link must carry at least is [`bound`]. Which links would reach it is
//! an edge colouring ([`Colouring`]); which port takes a flow there is a linear equation for affine
//! hashes and groups of 2^k ([`Solver`]), and a bounded search for everything else: Linux's hash,
//! weights, groups of other sizes. What a port does is always followed through the switches' own
//! hashes ([`Fabric`]), so that a plan's loads are what the network will show.

mod bound;
mod colouring;
mod fabric;
mod hops;
mod linear;
mod loads;
mod plan;
mod search;
mod targets;

use alloc::vec::Vec;

pub use bound::{Bound, bound};
pub use colouring::Colouring;
pub use fabric::{Choice, Fabric};
pub use linear::Solver;
pub use loads::{Loads, loads};
pub use plan::{Effort, How, Plan, plan, random_ports};
pub use search::least_busy;
use weft_topo::hash::{HashAlgorithm, SwitchHash};
use weft_topo::{LinkId, NodeId, RouteError, Topology};
use weft_units::Seed;

/// What one queue pair sends: from a NIC's port to a NIC. Flows are taken to be equally heavy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// The link it leaves its host by.
    pub first: LinkId,
    /// The host it goes to.
    pub destination: NodeId,
}

/// The source ports that flows may have, and the rest of the five-tuple that they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entropy {
    /// The lowest port; its low `bits` bits are zero.
    pub first: u16,
    /// How many bits of the port are free, 1 to 15.
    pub bits: u32,
    /// Destination port.
    pub destination_port: u16,
    /// IP protocol: 17 for UDP, 6 for TCP.
    pub protocol: u8,
}

impl Default for Entropy {
    /// RoCEv2: UDP to 4791 from 0xC000 to 0xFFFF.
    fn default() -> Self {
        Self { first: 0xc000, bits: 14, destination_port: 4791, protocol: 17 }
    }
}

impl Entropy {
    /// Every port.
    pub fn ports(self) -> impl Iterator<Item = u16> {
        (0..self.count()).map(move |number| self.port(number))
    }

    /// How many ports there are.
    pub const fn count(self) -> u32 {
        1 << self.bits
    }

    /// The port of that number, modulo how many there are.
    #[expect(clippy::cast_possible_truncation, reason = "the number is below 2^15")]
    pub const fn port(self, number: u32) -> u16 {
        self.first | (number & (self.count() - 1)) as u16
    }

    const fn check(self) -> Result<(), PlanError> {
        let fits = matches!(self.bits, 1..=15) && self.first.trailing_zeros() >= self.bits;
        if fits { Ok(()) } else { Err(PlanError::Entropy { first: self.first, bits: self.bits }) }
    }
}

/// Why ports cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The range of ports is none.
    #[error("{bits} free bits from port {first} on are no range: 1 to 15 bits that are zero in it")]
    Entropy {
        /// Its first port.
        first: u16,
        /// How many bits are free.
        bits: u32,
    },
    /// The network is too large.
    #[error(transparent)]
    Routes(#[from] RouteError),
    /// A flow that no route leads.
    #[error("flow {flow}: no route leads from {from} by its link {link} to {to}")]
    NoRoute {
        /// Its place among the flows.
        flow: usize,
        /// Who sends.
        from: weft_topo::NodeName,
        /// The link it leaves by.
        link: u32,
        /// Who should receive.
        to: weft_topo::NodeName,
    },
    /// A flow whose way is longer than any network's that is planned.
    #[error(
        "flow {flow}: the way from {from} to {to} has {hops} links after the first; a plan follows 16"
    )]
    TooLong {
        /// Its place among the flows.
        flow: usize,
        /// Who sends.
        from: weft_topo::NodeName,
        /// Who should receive.
        to: weft_topo::NodeName,
        /// Links after the host's own.
        hops: usize,
    },
    /// A flow names what the network does not have.
    #[error("flow {flow} names {what} {number}, which the network does not have")]
    NoSuch {
        /// Its place among the flows.
        flow: usize,
        /// `host` or `link`.
        what: &'static str,
        /// Its number.
        number: u32,
    },
}

/// The hash of every switch, by its number less the number of hosts: one function, a seed for
/// each drawn as the simulator draws them, each tier turned by so many bits more than the one below.
pub fn switch_hashes(
    topology: &Topology,
    algorithm: HashAlgorithm,
    rotate_by_tier: u32,
    seed: Seed,
) -> Vec<SwitchHash> {
    let hash = |(index, switch)| SwitchHash {
        algorithm,
        // Linux takes a zero seed for "choose one at random", hence never zero.
        seed: seed.child("switch hash", index).rng().next_u32() | 1,
        rotate: u32::from(topology.tier(switch)).saturating_sub(1) * rotate_by_tier,
    };
    (0..).zip(topology.switch_ids()).map(hash).collect()
}

#[cfg(test)]
mod tests;
