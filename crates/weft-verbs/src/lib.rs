//! A drop-in `libibverbs.so.1`: programs written for RDMA hardware run on Weft's software RNIC, without
//! being compiled again.
//!
//! [`weft_verbs_abi`] is what programs were compiled against, `exports` the functions they call, [`device`] what
//! they find. `symbols/` says which functions there are and in which version; `cargo xtask verbs` makes
//! the library.

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

/// What the fuzz targets of `fuzz/` call; nothing that ships has it.
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
