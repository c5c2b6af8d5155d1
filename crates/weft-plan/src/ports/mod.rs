//! Source ports ("entropies") for all flows at once, chosen so that the flows share as few links as possible:
//! TCCL's deterministic queue pairs (Astral, sections 2.2 and 3.4).
//!
//! [`bound`] computes the lowest possible number of flows on the busiest link. An edge colouring
//! ([`Colouring`]) assigns links that reach it. A linear equation finds the port for these links where hashes
//! are affine and groups have 2^k links ([`Solver`]); a bounded search finds it elsewhere: Linux's hash,
//! weights, groups of other sizes. Each port's path is computed with the switches' own hashes ([`Fabric`]), so
//! that a plan's loads are those of the network.

mod bound;
mod colouring;
mod fabric;
mod hops;
mod linear;
mod loads;
mod plan;
mod search;
mod shared;
mod targets;

use alloc::vec::Vec;

pub use bound::{Bound, bound};
pub use colouring::Colouring;
pub use fabric::{Choice, Fabric};
pub use linear::Solver;
pub use loads::{Loads, loads};
pub use plan::{Plan, PortSources, SearchLimits, plan, random_ports};
pub use search::least_busy;
pub use shared::{PortSource, SharedPlan, plan_shared};
use weft_topo::hash::{HashAlgorithm, SwitchHash};
use weft_topo::{LinkId, NodeId, RouteError, Topology};
use weft_units::Seed;

/// The flow of one queue pair, from a NIC's port to a NIC. All flows are assumed to have equal rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// The link by which the flow leaves its host.
    pub first: LinkId,
    /// The destination host.
    pub destination: NodeId,
}

/// The range of source ports, and the other fields of the five-tuple that flows share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entropy {
    /// The lowest port; its low `bits` bits are zero.
    pub first: u16,
    /// Number of free bits of the port, 1 to 15.
    pub bits: u32,
    /// The destination port.
    pub destination_port: u16,
    /// The IP protocol: 17 for UDP, 6 for TCP.
    pub protocol: u8,
}

impl Default for Entropy {
    /// Returns RoCEv2's range: UDP from 0xC000–0xFFFF to 4791.
    fn default() -> Self {
        Self { first: 0xc000, bits: 14, destination_port: 4791, protocol: 17 }
    }
}

impl Entropy {
    /// Returns every port of the range.
    pub fn ports(self) -> impl Iterator<Item = u16> {
        (0..self.count()).map(move |number| self.port(number))
    }

    /// Returns the number of ports.
    pub const fn count(self) -> u32 {
        1 << self.bits
    }

    /// Returns the port with this number, modulo the number of ports.
    #[expect(clippy::cast_possible_truncation, reason = "the number is below 2^15")]
    pub const fn port(self, number: u32) -> u16 {
        self.first | (number & (self.count() - 1)) as u16
    }

    const fn check(self) -> Result<(), PlanError> {
        let fits = matches!(self.bits, 1..=15) && self.first.trailing_zeros() >= self.bits;
        if fits { Ok(()) } else { Err(PlanError::Entropy { first: self.first, bits: self.bits }) }
    }
}

/// An error that prevents the planning of ports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The range of ports is invalid.
    #[error("{bits} free bits from port {first} on are no range: 1 to 15 bits that are zero in it")]
    Entropy {
        /// Its first port.
        first: u16,
        /// Number of free bits.
        bits: u32,
    },
    /// The network is too large.
    #[error(transparent)]
    Routes(#[from] RouteError),
    /// A flow has no route.
    #[error("flow {flow}: no route leads from {from} by its link {link} to {to}")]
    NoRoute {
        /// The flow's index.
        flow: usize,
        /// The sender.
        from: weft_topo::NodeName,
        /// The link by which it leaves its host.
        link: u32,
        /// The destination.
        to: weft_topo::NodeName,
    },
    /// A flow's path is longer than the planner's limit.
    #[error(
        "flow {flow}: the way from {from} to {to} has {hops} links after the first; a plan follows 16"
    )]
    TooLong {
        /// The flow's index.
        flow: usize,
        /// The sender.
        from: weft_topo::NodeName,
        /// The destination.
        to: weft_topo::NodeName,
        /// Number of links after the host's own.
        hops: usize,
    },
    /// A setting takes more ports than the range has.
    #[error(
        "{span} consecutive ports of a setting are more than the {ports} of the range: plan fewer queue pairs"
    )]
    Span {
        /// The setting's ports.
        span: u16,
        /// The range's.
        ports: u32,
    },
    /// A flow names a host or link that the network does not have.
    #[error("flow {flow} names {what} {number}, which the network does not have")]
    NoSuch {
        /// The flow's index.
        flow: usize,
        /// `host` or `link`.
        what: &'static str,
        /// The host's or link's number.
        number: u32,
    },
}

/// Returns the hash of every switch, indexed by node number minus the number of hosts. All have one function;
/// seeds are drawn as in the simulator; each tier's hash is rotated by `rotate_by_tier` bits more than that of
/// the tier below.
pub fn switch_hashes(
    topology: &Topology,
    algorithm: HashAlgorithm,
    rotate_by_tier: u32,
    seed: Seed,
) -> Vec<SwitchHash> {
    let hash = |(index, switch)| SwitchHash {
        algorithm,
        // Linux replaces a zero seed with a random one, hence no seed is zero.
        seed: seed.child("switch hash", index).rng().next_u32() | 1,
        rotate: u32::from(topology.tier(switch)).saturating_sub(1) * rotate_by_tier,
    };
    (0..).zip(topology.switch_ids()).map(hash).collect()
}

#[cfg(test)]
mod tests;
