//! A drop-in `libibverbs.so.1`: programs written for RDMA hardware run on Weft's software RNIC without recompilation.
//!
//! [`weft_verbs_abi`] has the structures of the programs' headers, `exports` the functions they call, [`device`] the
//! device they find. `symbols/` lists the functions and their versions; `cargo xtask verbs` makes the library.

mod admin;
mod attach;
mod context;
mod daemon;
pub mod device;
mod engine;
mod errno;
mod exports;
#[cfg(any(test, fuzzing))]
#[path = "../../weft-units/tests/inputs/mod.rs"]
mod inputs;
mod interfaces;
mod objects;

/// The checks that the fuzz targets of `fuzz/` call; no shipped program contains them.
#[cfg(fuzzing)]
pub mod properties {
    pub use crate::attach::properties::{message, ring};
    pub use crate::daemon::properties::daemon;
    pub use crate::engine::same_host_properties::{greeting, leases, records, writer};
}

pub use admin::Admin;
pub use attach::{Amounts, CallError, DeviceState, default_socket};
pub use daemon::{Daemon, DaemonSettings, QuotaSettings, ServeError, Stopper};
pub use engine::{HeldSettings, describe_limits, describe_transport};
