//! A drop-in `librdmacm.so.1`: RDMA programs that name each other by address and port connect without a kernel module,
//! over any `libibverbs.so.1` beside it.
//!
//! [`abi`] has the structures of the programs' headers, `exports` the functions they call. `message` and `manager` are
//! the protocol between two ends, without sockets and without a clock; `service` has both. `symbols/` lists the
//! functions and their versions; `cargo xtask verbs` makes the library.

pub mod abi;
mod address;
mod errno;
mod event;
/// Queues of events that programs wait for; verbs has the same.
#[path = "../../weft-verbs/src/engine/events.rs"]
mod events;
mod exports;
mod ibverbs;
mod id;
#[cfg(any(test, fuzzing))]
#[path = "../../weft-units/tests/inputs/mod.rs"]
mod inputs;
mod manager;
mod message;
mod service;
mod transition;

/// The checks that the fuzz targets of `fuzz/` call; no shipped program contains them.
#[cfg(fuzzing)]
pub mod properties {
    pub use crate::manager::properties::{manager, message};
}
