//! Source ports.

use alloc::vec::Vec;

use weft_topo::Topology;
use weft_topo::hash::{HashAlgorithm, SwitchHash};
use weft_units::Seed;

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
