//! A drop-in `libibverbs.so.1`: programs written for RDMA hardware run on Weft's software RNIC without recompilation.
//!
//! [`weft_verbs_abi`] has the structures of `verbs.h`; `exports` and `objects` have the functions that programs call,
//! and [`device`] describes the device that they find. `symbols/` lists the functions and their versions; `cargo xtask
//! verbs` makes the library.
//!
//! A program calls the C interface:
//!
//! ```
//! use core::ffi::{CStr, c_char, c_int};
//! use weft_verbs_abi::ibv_device;
//! # use weft_verbs as _;
//!
//! unsafe extern "C" {
//!     fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
//!     fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
//!     fn ibv_free_device_list(list: *mut *mut ibv_device);
//! }
//!
//! let mut count = 0;
//! // SAFETY: as the manual pages ask; the list has `count` devices and is freed once.
//! unsafe {
//!     let list = ibv_get_device_list(&mut count);
//!     if count > 0 {
//!         assert_eq!(CStr::from_ptr(ibv_get_device_name(*list)), c"weft0");
//!     }
//!     ibv_free_device_list(list);
//! }
//! assert!(count <= 1);
//! ```

mod admin;
mod attach;
mod context;
mod daemon;
pub mod device;
mod engine;
mod errno;
mod exports;
mod guest;
#[cfg(any(test, fuzzing))]
#[path = "../../weft-units/tests/inputs/mod.rs"]
mod inputs;
mod interfaces;
mod objects;
mod sysfs;
pub mod thread;
mod usage;

/// The checks that the fuzz targets of `fuzz/` call; no shipped program contains them.
#[cfg(fuzzing)]
pub mod properties {
    pub use crate::attach::properties::{message, ring};
    pub use crate::daemon::properties::{daemon, state};
    pub use crate::engine::same_host_properties::{greeting, leases, records, writer};
}

pub use admin::Admin;
pub use attach::{
    Amounts, CallError, DeviceCounters, DeviceLimits, DeviceState, Names, Totals, default_socket,
};
pub use daemon::{
    CountedEvent, Daemon, DaemonEvent, DaemonSettings, EventKind, OnEvent, QuotaSettings,
    ServeError, StateError, Stopper, Subject,
};
/// For this crate's own benches, which are crates of their own; it may change in any version.
#[doc(hidden)]
pub use engine::{ClientAddress, DeviceClient, Done};
pub use engine::{HeldSettings, describe_limits, describe_transport};
pub use guest::{GuestDevice, GuestError};
