//! A drop-in `librdmacm.so.1`: RDMA programs that find each other by address and port connect without a
//! kernel module, over whatever `libibverbs.so.1` stands beside it.
//!
//! [`abi`] is what programs were compiled against, `exports` the functions they call. `message` and `manager`
//! are the protocol between two ends, without sockets and without a clock; `service` has both. `symbols/`
//! says which functions there are and in which version; `cargo xtask verbs` makes the library.

pub mod abi;
mod address;
mod errno;
mod event;
/// Queues that programs wait for, as those of verbs.
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

/// What the fuzz targets of `fuzz/` call; nothing that ships has it.
#[cfg(fuzzing)]
pub mod properties {
    pub use crate::manager::properties::{manager, message};
}
