//! The types that every part of Weft uses: time, bytes, rates, histograms, registries, small maps, and seeds for all
//! random draws.
//!
//! Nothing here reads a clock or a source of entropy: the first [`Instant`] comes from a driver (the agent's clock, the
//! simulator's event queue) and the first [`Seed`] from the command line.
//!
//! ```
//! use weft_units::{BitRate, ByteCount, Duration, Seed};
//!
//! let rate: BitRate = "100Gbps".parse()?;
//! assert_eq!(rate.serialization_delay(ByteCount::kib(4)), Duration::from_nanos(328));
//!
//! // The draws of a part depend only on the run's seed, its name and its index: a new part does not change them.
//! let run = Seed(1);
//! assert_eq!(run.child("host", 7).rng().next_u64(), run.child("host", 7).rng().next_u64());
//! # Ok::<(), weft_units::ParseUnitError>(())
//! ```
#![cfg_attr(not(test), no_std)]
#![deny(unsafe_code)]

extern crate alloc;

mod bytes;
mod fnv;
mod histogram;
mod parse;
mod prefetch;
mod probability;
mod rate;
mod registry;
mod rng;
mod seed;
mod small_map;
mod time;

pub use bytes::ByteCount;
pub use fnv::{Fnv1a, fnv1a_32};
pub use histogram::Histogram;
pub use parse::{ParseUnitError, suggest, unknown_name};
pub use prefetch::{prefetch, prefetch_all};
pub use probability::Probability;
pub use rate::BitRate;
pub use registry::UnknownName;
#[cfg(feature = "serde")]
#[doc(hidden)]
pub use registry::for_macros;
pub use rng::Rng;
pub use seed::Seed;
pub use small_map::SmallMap;
pub use time::{Duration, Instant};
