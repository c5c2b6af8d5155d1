//! A drop-in `librdmacm.so.1`: RDMA programs that name each other by address and port connect without a kernel module,
//! over any `libibverbs.so.1` beside it.
//!
//! [`abi`] has the structures of `rdma_cma.h`, and `exports` has the functions that programs call. `message` and
//! `manager` are the protocol between two ends, without sockets and without a clock; `service` has both. `symbols/`
//! lists the functions and their versions; `cargo xtask verbs` makes the library.
//!
//! A program calls the C interface:
//!
//! ```
//! use core::ffi::{CStr, c_char};
//! use weft_rdmacm::abi::{cm_event, rdma_event_channel};
//!
//! unsafe extern "C" {
//!     safe fn rdma_event_str(event: u32) -> *const c_char;
//!     safe fn rdma_create_event_channel() -> *mut rdma_event_channel;
//!     fn rdma_destroy_event_channel(channel: *mut rdma_event_channel);
//! }
//! # // The functions of libibverbs.so.1.
//! # use weft_verbs as _;
//!
//! // SAFETY: the function returns a string of the library.
//! let name = unsafe { CStr::from_ptr(rdma_event_str(cm_event::ESTABLISHED)) };
//! assert_eq!(name, c"RDMA_CM_EVENT_ESTABLISHED");
//! let channel = rdma_create_event_channel();
//! // SAFETY: the channel was just made, and is not used after its end.
//! unsafe {
//!     assert!((*channel).fd >= 0);
//!     rdma_destroy_event_channel(channel);
//! }
//! ```

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
