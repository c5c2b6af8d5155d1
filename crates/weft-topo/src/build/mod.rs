//! The topologies by name: one file for each shape, one row in the [registry](TopologyConfig).
//!
//! Each shape is a plain struct of parameters whose `Default` is the published network. Nodes are
//! numbered in a documented order, so that experiments can name "the first thirty servers".

mod fat_tree;
mod hpn;
mod leaf_spine;
mod rail;
mod registry;

pub use fat_tree::FatTree;
pub use hpn::Hpn;
pub use leaf_spine::LeafSpine;
pub use rail::Rail;
pub use registry::{TopologyConfig, TopologyKind};
use weft_units::{BitRate, Duration};

use crate::graph::TopologyError;

/// An error of [`TopologyConfig::build`]: the parameters describe no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A parameter that counts something is zero.
    #[error("{parameter} must be at least 1")]
    Zero {
        /// The parameter's name.
        parameter: &'static str,
    },
    /// A parameter has a value that the shape does not support.
    #[error("{parameter} is {got}, expected {expected}")]
    OutOfRange {
        /// The parameter's name.
        parameter: &'static str,
        /// Its value.
        got: u64,
        /// The supported values.
        expected: &'static str,
    },
    /// A list of rates has neither one rate for all nor one rate for each.
    #[error("{parameter} has {got} rates, expected 1 or {expected}")]
    RateCount {
        /// The list's name.
        parameter: &'static str,
        /// Its length.
        got: usize,
        /// The other supported length.
        expected: u32,
    },
    /// The network is too large or not connected.
    #[error(transparent)]
    Topology(#[from] TopologyError),
}

/// Returns the error `Zero` for the first parameter that is zero.
fn at_least_one(parameters: &[(&'static str, u32)]) -> Result<(), BuildError> {
    match parameters.iter().find(|(_, value)| *value == 0) {
        Some(&(parameter, _)) => Err(BuildError::Zero { parameter }),
        None => Ok(()),
    }
}

/// Returns the product of counts, a number of nodes; the error `Topology` if it exceeds 32 bits.
fn product(counts: &[u32]) -> Result<u32, BuildError> {
    let exact = counts.iter().try_fold(1u64, |all, &count| all.checked_mul(count.into()));
    let got = exact.unwrap_or(u64::MAX);
    u32::try_from(got).map_err(|_| TopologyError::TooManyNodes { got }.into())
}

const fn gbps(giga: u64) -> BitRate {
    BitRate::gbps(giga).expect("a rate in this file is above zero")
}

/// Hopper's link latency (section 4.1; the public ns-3 topology file writes it as 1000 ns), the default of every shape,
/// because the other papers give none. It is the sum of the delays of cable and switch.
const LINK_LATENCY: Duration = Duration::from_micros(1);

#[cfg(test)]
mod tests;
